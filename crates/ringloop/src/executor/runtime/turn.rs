//! Runs turns of a loop until a future is ready.

use super::local::Local;
use crate::executor::task::join::JoinHandle;
use crate::limits;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Drops every task while their loop is the current one.
pub(crate) fn shut_down(local: &Local) {
    let _entered = local.enter();
    local.shut_down();
}

/// A queue entry for a future that is no task: it may borrow from the caller's stack.
struct Root {
    called: Rc<RefCell<Called>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Called {
    woken: bool,
    waker: Option<Waker>,
}

impl Root {
    fn new(local: &Local) -> Self {
        let called = Rc::new(RefCell::new(Called::default()));
        let shared = Rc::clone(&called);
        let task = local.spawn_unlisted(std::future::poll_fn(move |cx| {
            let mut called = shared.borrow_mut();
            called.woken = true;
            called.waker.get_or_insert_with(|| cx.waker().clone());
            Poll::Pending
        }));
        Self { called, task }
    }

    fn is_woken(&self) -> bool {
        self.called.borrow().woken
    }

    /// The waker to poll with, if it was woken since the last call.
    fn take(&self) -> Option<Waker> {
        let mut called = self.called.borrow_mut();
        if std::mem::take(&mut called.woken) { called.waker.clone() } else { None }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.called.borrow_mut().waker = None;
        self.task.abort();
    }
}

/// Runs turns until `future` is ready.
pub(crate) fn run<T>(local: &Local, future: impl Future<Output = T>) -> io::Result<T> {
    let _entered = local.enter();
    let root = Root::new(local);
    let ended = turns(local, &root, future);
    drop(root);
    // Cancels and closes of the future's end must not wait for the next call.
    ended.and_then(|value| {
        local.engine().park(Some(Duration::ZERO))?;
        Ok(value)
    })
}

fn turns<T>(local: &Local, root: &Root, future: impl Future<Output = T>) -> io::Result<T> {
    let mut future = pin!(future);
    loop {
        local.tidy();
        let mut left = limits::TASKS_PER_TURN;
        while left > 0 {
            // The future is polled after the tasks that were ready first: it may be what they wake.
            let batch = local.hub().ready_count().min(left);
            for _ in 0..batch {
                local.run_one();
            }
            left -= batch.max(1);
            if let Some(waker) = root.take() {
                let mut cx = Context::from_waker(&waker);
                local.begin_poll();
                if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
                    return Ok(value);
                }
            } else if batch == 0 {
                break;
            }
            left = left.saturating_sub(local.take_polls_spent());
        }
        let is_ready = local.has_ready() || root.is_woken();
        let mut engine = local.engine();
        engine.park(is_ready.then_some(Duration::ZERO))?;
        engine.fire_timers();
        // Only futures submit here, so no completion comes out as an event.
        while engine.next_event().is_some() {}
    }
}
