//! The engine's error type: variants by whose fault it is, messages with cause and remedy.

use std::fmt;
use std::io;

/// Why the engine could not do what it was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The driver that was demanded cannot run here; the text names the cause and the remedy.
    DriverRefused(String),
    /// `RINGLOOP_DRIVER` (or the option) holds a word that names no driver.
    UnknownDriver(String),
    /// The inbox of a loop is full: the loop is stuck, or a producer never waits.
    InboxFull {
        /// How many messages are waiting.
        waiting: usize,
    },
    /// The loop has been closed.
    Closed,
    /// A task was sent to a worker that the runtime does not have.
    NoSuchWorker {
        /// The number asked for.
        worker: usize,
        /// How many workers there are, counted from 0.
        count: usize,
    },
    /// A worker's loop has ended before its time; its tasks were dropped.
    WorkerFailed {
        /// Its number.
        worker: usize,
        /// The error, or what the panic said.
        reason: String,
    },
    /// A system call failed.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DriverRefused(reason) => f.write_str(reason),
            Self::UnknownDriver(word) => write!(
                f,
                "unknown driver {word:?}; set RINGLOOP_DRIVER to one of auto, uring, epoll"
            ),
            Self::InboxFull { waiting } => write!(
                f,
                "the loop's inbox is full ({waiting} messages wait); the loop is blocked or the \
                 sender is too fast: wait for an acknowledgement before sending more"
            ),
            Self::Closed => f.write_str("the event loop is closed"),
            Self::NoSuchWorker { worker, count } => write!(
                f,
                "there is no worker {worker}; this runtime has {count}, numbered from 0 \
                 (Runtime::builder().workers(n))"
            ),
            Self::WorkerFailed { worker, reason } => write!(
                f,
                "worker {worker} has stopped, and its tasks were dropped: {reason}"
            ),
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
