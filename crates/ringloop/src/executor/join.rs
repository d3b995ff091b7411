//! The result of a task, for whoever waits for it.
//!
//! Called by: `local` (which stores the result) and the task's spawner.
//! Never does: keep a task alive; dropping the handle lets the task run on by itself.

use super::task::Header;
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Why a task has no result.
pub enum JoinError {
    /// It was aborted, or its runtime was dropped.
    Aborted,
    /// It panicked; the payload is what `std::thread::JoinHandle::join` would give.
    Panicked(Box<dyn Any + Send>),
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aborted => f.write_str("the task was aborted"),
            Self::Panicked(payload) => {
                let message = payload
                    .downcast_ref::<&str>()
                    .copied()
                    .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                write!(
                    f,
                    "the task panicked: {}",
                    message.unwrap_or("(no message)")
                )
            }
        }
    }
}

impl std::error::Error for JoinError {}

/// Where a task's result is.
#[derive(Debug)]
pub(super) enum Outcome<T> {
    /// The task has none yet.
    Pending,
    /// It waits for the handle.
    Ready(Result<T, JoinError>),
    /// The handle gave it out.
    Taken,
}

/// What a task and its handle share.
#[derive(Debug)]
pub(super) struct Join<T> {
    pub outcome: Outcome<T>,
    pub waiter: Option<Waker>,
    pub abort: bool,
}

impl<T> Join<T> {
    pub fn new() -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            outcome: Outcome::Pending,
            waiter: None,
            abort: false,
        }))
    }

    /// Store the result and wake whoever waits for it.
    pub fn settle(this: &Rc<RefCell<Self>>, result: Result<T, JoinError>) {
        let waiter = {
            let mut join = this.borrow_mut();
            join.outcome = Outcome::Ready(result);
            join.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// Waits for a task's result; dropping it detaches the task.
#[derive(Debug)]
pub struct JoinHandle<T> {
    pub(super) join: Rc<RefCell<Join<T>>>,
    pub(super) header: Arc<Header>,
}

impl<T> JoinHandle<T> {
    /// Drop the task's future at its loop's next turn; a finished task is left alone.
    pub fn abort(&self) {
        self.join.borrow_mut().abort = true;
        if self.header.state.wake() {
            Arc::clone(&self.header).enqueue();
        }
    }

    /// Whether the task is over.
    pub fn is_finished(&self) -> bool {
        !matches!(self.join.borrow().outcome, Outcome::Pending)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// Panics: when it is polled after it gave the result, as an `async` block does.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut join = self.join.borrow_mut();
        match std::mem::replace(&mut join.outcome, Outcome::Taken) {
            Outcome::Ready(result) => Poll::Ready(result),
            Outcome::Taken => panic!("JoinHandle polled after it gave the task's result"),
            Outcome::Pending => {
                join.outcome = Outcome::Pending;
                join.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
