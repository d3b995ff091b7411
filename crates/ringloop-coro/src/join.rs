//! The handle that waits for a coroutine's result.
//!
//! Owns: [`JoinHandle`]. Called by: the spawner, in a coroutine, on a thread or in async code. The
//! handle keeps no coroutine alive: without it, the coroutine runs on.

use crate::error::JoinError;
use crate::task::{self, Joinable, Runnable};
use crate::wait::block_on_anywhere;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Waits for a coroutine's result, from anywhere; dropping it detaches the coroutine.
///
/// A coroutine or a thread calls [`join`](Self::join). Async code awaits the handle, `select!`
/// takes `&mut handle`.
///
/// It is `Send` if the result is:
/// ```compile_fail,E0277
/// fn is_send<T: Send>() {}
/// is_send::<ringloop_coro::JoinHandle<std::rc::Rc<u8>>>();
/// ```
/// ```
/// fn is_send<T: Send>() {}
/// is_send::<ringloop_coro::JoinHandle<String>>();
/// ```
#[must_use = "dropping the handle detaches the coroutine"]
pub struct JoinHandle<T> {
    task: Arc<dyn Joinable<T>>,
    is_taken: bool,
    /// Makes it as `Send` as the result.
    result: PhantomData<T>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("coroutine", &self.task.header().to_string())
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

// The result is not stored in the handle.
impl<T> Unpin for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: Arc<dyn Joinable<T>>) -> Self {
        Self { task, is_taken: false, result: PhantomData }
    }

    /// Whether the coroutine has ended.
    pub fn is_finished(&self) -> bool {
        self.task.header().is_finished()
    }

    /// Has the coroutine unwind: at once if it is parked, else at its next park.
    ///
    /// Its destructors run, and its result is [`JoinError::Cancelled`]. A coroutine that has not
    /// begun never begins; an ended one keeps its result.
    pub fn cancel(&self) {
        task::cancel(&self.task());
    }

    pub(crate) fn task(&self) -> Arc<dyn Runnable> {
        Arc::clone(&self.task) as Arc<dyn Runnable>
    }

    /// Waits for the end: a coroutine parks, a thread blocks.
    ///
    /// # Errors
    /// The coroutine was cancelled, has panicked or got no stack.
    ///
    /// # Panics
    /// In async code on a runtime's thread, which it would block: await the handle there.
    #[track_caller]
    pub fn join(self) -> Result<T, JoinError> {
        block_on_anywhere(self, "the handle")
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// After it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.is_finished() {
            self.task.header().register(cx.waker());
            // It may have finished before it could see the waker.
            if !self.is_finished() {
                return Poll::Pending;
            }
        }
        self.is_taken = true;
        match self.task.take() {
            Some(result) => Poll::Ready(result),
            None => panic!("JoinHandle polled after it gave the coroutine's result"),
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if !self.is_taken {
            self.task.detach();
        }
    }
}
