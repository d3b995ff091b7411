//! The engine's error type: variants by whose fault it is, messages with cause and remedy.

use crate::sys::selector::Selector;
use crate::sys::uring::Refusal;
use std::fmt;
use std::io;

/// An error of the engine.
#[non_exhaustive]
pub enum Error {
    /// The demanded driver cannot run here; the text names the cause and the remedy.
    DriverRefused(Refusal),
    /// An unknown driver name.
    UnknownDriver(String),
    /// `RINGLOOP_DRIVER` has an unknown driver name.
    UnknownDriverInEnvironment(String),
    /// The inbox of a loop is full: the loop is stuck, or a producer never waits.
    InboxFull {
        /// Messages queued.
        waiting: usize,
    },
    /// The loop has been closed.
    Closed,
    /// The loop was made before a fork(2), in the parent process.
    Inherited,
    /// A task was sent to a worker that the runtime does not have.
    NoSuchWorker {
        /// The number asked for.
        worker: usize,
        /// Number of workers, numbered from 0.
        count: usize,
    },
    /// A worker's loop ended early; its tasks were dropped.
    WorkerFailed {
        /// Its number.
        worker: usize,
        /// The error, or the panic's message.
        reason: String,
    },
    /// A system call failed.
    Io(io::Error),
}

/// Its message, as printed by a `main` that returns it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DriverRefused(refusal) => refusal.fmt(f),
            Self::UnknownDriver(word) => {
                let readiness = Selector::NAME;
                write!(
                    f,
                    "unknown driver {word:?}: use one of auto, uring (or io_uring), {readiness}"
                )
            }
            Self::UnknownDriverInEnvironment(word) => write!(
                f,
                "RINGLOOP_DRIVER names an unknown driver, {word:?}: \
                 set it to one of auto, uring (or io_uring), {}",
                Selector::NAME
            ),
            Self::InboxFull { waiting } => write!(
                f,
                "the loop's inbox is full ({waiting} messages wait); the loop is blocked or the \
                 sender is too fast: wait for an acknowledgement before sending more"
            ),
            Self::Closed => f.write_str("the event loop is closed"),
            Self::Inherited => f.write_str(
                "this runtime was made before a fork and belongs to the parent process; \
                 make a new one in the child",
            ),
            Self::NoSuchWorker { worker, count } => write!(
                f,
                "there is no worker {worker}; this runtime has {count}, numbered from 0 \
                 (Runtime::builder().workers(n))"
            ),
            Self::WorkerFailed { worker, reason } => {
                write!(f, "worker {worker} has stopped, and its tasks were dropped: {reason}")
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io(error) => error,
            other => io::Error::other(other),
        }
    }
}
