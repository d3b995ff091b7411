//! The result of a task, for whoever waits for it on the task's own thread.
//!
//! Called by: the task's spawner. Never does: keep a task alive; dropping the handle lets the task run
//! on by itself. What may be awaited from another worker is `remote`.

use super::core::Handle;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Why a task has no result.
pub enum JoinError {
    /// It was aborted or cancelled, or its runtime ended.
    Cancelled,
    /// It panicked; the payload is what `std::thread::JoinHandle::join` would give.
    Panicked(Box<dyn Any + Send>),
    /// The system has no thread for the call ([`crate::spawn_blocking`]), or no stack for the coroutine.
    Refused(io::Error),
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("the task was cancelled"),
            Self::Refused(error) => write!(f, "the task could not start: {error}"),
            Self::Panicked(payload) => {
                write!(f, "the task panicked: {}", panic_message(payload.as_ref()))
            }
        }
    }
}

impl std::error::Error for JoinError {}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Refused(error) => error,
            // A boxed panic is `Send` only; its words are what can be kept.
            other => io::Error::other(other.to_string()),
        }
    }
}

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
