//! Why a task has no result.

use std::any::Any;
use std::fmt;
use std::io;

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

/// The message of a panic.
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
            // A panic's payload is `Send` only; its message can be kept.
            other => io::Error::other(other.to_string()),
        }
    }
}
