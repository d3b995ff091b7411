//! The result of a task, for any thread.
//!
//! Owns: [`RemoteJoinHandle`] and its other end. Called by: `workers` (which starts tasks on other
//! threads), `blocking` (calls on pool threads). The task's future stays on its own thread.
//!
//! A lock instead of atomics: it is taken once when the task ends, and once per poll of the handle.

use super::error::JoinError;
use super::listed::waiting;
use crate::executor::sync::{Mutex, MutexGuard};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

/// State of the result.
enum Outcome<T> {
    Pending,
    Ready(Result<T, JoinError>),
    Taken,
}

struct State<T> {
    outcome: Outcome<T>,
    /// Waker of the handle.
    waiter: Option<Waker>,
    aborted: bool,
    /// The task, for an abort to wake.
    task: Option<Waker>,
}

struct Shared<T>(Mutex<State<T>>);

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is consistent at any point.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the result; only the first one counts.
    fn finish(&self, result: Result<T, JoinError>) {
        let waiter = {
            let mut state = self.lock();
            state.task = None;
            if !matches!(state.outcome, Outcome::Pending) {
                return;
            }
            state.outcome = Outcome::Ready(result);
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// Waits for the result of a task on another thread; dropping it detaches the task.
///
/// It is `Send` if the result is:
/// ```compile_fail,E0277
/// use ringloop::RemoteJoinHandle;
/// fn may_leave_the_thread<T: Send>() {}
/// may_leave_the_thread::<RemoteJoinHandle<std::rc::Rc<u8>>>();
/// ```
/// ```
/// use ringloop::RemoteJoinHandle;
/// fn may_leave_the_thread<T: Send>() {}
/// may_leave_the_thread::<RemoteJoinHandle<String>>();
/// ```
pub struct RemoteJoinHandle<T> {
    shared: Arc<Shared<T>>,
}

/// The other end: stores the result; dropped before that, it stores that there is none.
pub(crate) struct Settle<T> {
    shared: Arc<Shared<T>>,
}

/// Both ends of a result.
pub(crate) fn pair<T>() -> (Settle<T>, RemoteJoinHandle<T>) {
    let state = State { outcome: Outcome::Pending, waiter: None, aborted: false, task: None };
    let shared = Arc::new(Shared(Mutex::new(state)));
    let settle = Settle { shared: Arc::clone(&shared) };
    (settle, RemoteJoinHandle { shared })
}

impl<T> Settle<T> {
    /// Stores the result; only the first one counts.
    pub fn finish(&self, result: Result<T, JoinError>) {
        self.shared.finish(result);
    }

    /// True if the handle has aborted the task; otherwise wakes `task` when it does.
    fn poll_aborted(&self, task: &Waker) -> bool {
        let mut state = self.shared.lock();
        if !state.task.as_ref().is_some_and(|it| it.will_wake(task)) {
            state.task = Some(task.clone());
        }
        state.aborted
    }
}

impl<T> Drop for Settle<T> {
    fn drop(&mut self) {
        self.finish(Err(JoinError::Cancelled));
    }
}

impl<T> RemoteJoinHandle<T> {
    /// Drops the task's future at the next turn of its loop; no effect if the task has ended.
    pub fn abort(&self) {
        let task = {
            let mut state = self.shared.lock();
            state.aborted = true;
            state.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// The task could not start: stores why.
    pub(crate) fn refuse(&self, error: JoinError) {
        self.shared.finish(Err(error));
    }

    /// True if the task has ended.
    pub fn is_finished(&self) -> bool {
        !matches!(self.shared.lock().outcome, Outcome::Pending)
    }
}

impl<T> Future for RemoteJoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// If it is polled after it has completed, like an `async` block.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.lock();
        match std::mem::replace(&mut state.outcome, Outcome::Taken) {
            Outcome::Ready(result) => Poll::Ready(result),
            Outcome::Taken => {
                drop(state);
                panic!("RemoteJoinHandle polled after it gave the task's result")
            }
            Outcome::Pending => {
                state.outcome = Outcome::Pending;
                state.waiter = Some(cx.waker().clone());
                waiting("a task of another thread")
            }
        }
    }
}

impl<T> fmt::Debug for RemoteJoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteJoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

impl<T> fmt::Debug for Settle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settle").finish_non_exhaustive()
    }
}

/// Drives a future to its result, its panic or its abort, whichever comes first.
pub(crate) async fn drive<F: Future>(future: F, settle: Settle<F::Output>) {
    let mut future = pin!(Some(future));
    let result = std::future::poll_fn(|cx| {
        if settle.poll_aborted(cx.waker()) {
            return Poll::Ready(Err(JoinError::Cancelled));
        }
        let Some(future) = future.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(JoinError::Cancelled));
        };
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(payload) => Poll::Ready(Err(JoinError::Panicked(payload))),
        }
    })
    .await;
    // Drops the future first: its operations are cancelled before the waiter sees the result.
    let dropped = catch_unwind(AssertUnwindSafe(|| future.set(None)));
    settle.finish(match dropped {
        Ok(()) => result,
        Err(payload) => Err(JoinError::Panicked(payload)),
    });
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The waiter finds the result at once, or is woken.
    #[test]
    fn result_is_found_or_wakes() {
        loom::model(|| {
            let (settle, mut handle) = pair();
            let task = thread::spawn(move || settle.finish(Ok(7)));
            let count = Arc::new(Count(AtomicU32::new(0)));
            let waker = Waker::from(Arc::clone(&count));
            let mut cx = Context::from_waker(&waker);
            let first = Pin::new(&mut handle).poll(&mut cx);
            task.join().expect("task");
            if first.is_pending() {
                assert_eq!(count.0.load(Ordering::SeqCst), 1, "not woken");
                let second = Pin::new(&mut handle).poll(&mut cx);
                assert!(matches!(second, Poll::Ready(Ok(7))));
            }
        });
    }
}
