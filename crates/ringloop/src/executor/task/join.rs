//! The result of a task, for a task on the same thread.
//!
//! Called by: the task's spawner. Does not keep a task alive; dropping the handle detaches the
//! task. `remote` has the handle that other workers may await.

use super::core::Handle;
use super::error::JoinError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Waits for a task's result, on the task's own thread; dropping it detaches the task.
///
/// It cannot leave its thread; [`crate::spawn_on`] gives a handle that can:
/// ```compile_fail,E0277
/// fn may_leave_the_thread<T: Send>(_: T) {}
/// # ringloop::Runtime::new().unwrap().block_on(async {
/// may_leave_the_thread(ringloop::spawn(async { 1 }));
/// # });
/// ```
pub struct JoinHandle<T> {
    pub(crate) task: Handle<T>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

impl<T> JoinHandle<T> {
    /// Drops the task's future at its loop's next turn; no effect if the task has ended.
    pub fn abort(&self) {
        self.task.abort();
    }

    /// True if the task has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_over()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// If it is polled after it has completed, like an `async` block.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.task.poll(cx).map(|result| {
            result.unwrap_or_else(|| panic!("JoinHandle polled after it gave the task's result"))
        })
    }
}
