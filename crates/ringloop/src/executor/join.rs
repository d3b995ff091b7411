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

/// What a task and its handle share.
#[derive(Debug)]
pub(super) struct Join<T> {
    pub result: Option<Result<T, JoinError>>,
    pub waiter: Option<Waker>,
    pub abort: bool,
}

impl<T> Join<T> {
    pub fn new() -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            result: None,
            waiter: None,
            abort: false,
        }))
    }

    /// Store the result and wake whoever waits for it.
    pub fn settle(this: &Rc<RefCell<Self>>, result: Result<T, JoinError>) {
        let waiter = {
            let mut join = this.borrow_mut();
            join.result = Some(result);
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

    /// Whether the result is there.
    pub fn is_finished(&self) -> bool {
        self.join.borrow().result.is_some()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut join = self.join.borrow_mut();
        if let Some(result) = join.result.take() {
            return Poll::Ready(result);
        }
        join.waiter = Some(cx.waker().clone());
        Poll::Pending
    }
}
