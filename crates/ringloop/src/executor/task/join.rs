//! The result of a task, for whoever waits for it on the task's own thread.
//!
//! Called by: the task's spawner. Never does: keep a task alive; dropping the handle lets the task run
//! on by itself. What may be awaited from another worker is `remote`.

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
        f.debug_struct("JoinHandle")
            .field("is_finished", &self.is_finished())
            .finish()
    }
}

impl<T> JoinHandle<T> {
    /// Drop the task's future at its loop's next turn; a finished task is left alone.
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Whether the task is over.
    pub fn is_finished(&self) -> bool {
        self.task.is_over()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// Panics: when it is polled after it gave the result, as an `async` block does.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.task.poll(cx).map(|result| {
            result.unwrap_or_else(|| panic!("JoinHandle polled after it gave the task's result"))
        })
    }
}
