//! The crate's errors, and the payload that unwinds a cancelled coroutine.
//!
//! Owns: [`JoinError`], [`WaitError`], [`Cancelled`]. Called by: `task` (stores a `JoinError`),
//! `wait` (returns a `WaitError`, throws `Cancelled`), and everything that returns either.

use std::any::Any;
use std::fmt;
use std::io;

/// Payload of the panic that unwinds a cancelled coroutine.
#[derive(Debug)]
pub(crate) struct Cancelled;

/// Why a coroutine has no result.
pub enum JoinError {
    /// It was cancelled, or its runtime ended.
    Cancelled,
    /// It panicked; the payload is what `std::thread::JoinHandle::join` would give.
    Panicked(Box<dyn Any + Send>),
    /// The system has no stack for it; it never began.
    Refused(io::Error),
}

impl JoinError {
    pub(crate) fn from_payload(payload: Box<dyn Any + Send>) -> Self {
        if payload.is::<Cancelled>() {
            Self::Cancelled
        } else {
            Self::Panicked(payload)
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("the coroutine was cancelled"),
            Self::Refused(error) => write!(f, "there is no stack for the coroutine: {error}"),
            Self::Panicked(payload) => {
                let text = payload.downcast_ref::<&str>().copied();
                let message = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
                let message = message.unwrap_or("(no message)");
                write!(f, "the coroutine panicked: {message}")
            }
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Refused(error) => error,
            // A panic's payload is only `Send`; its message can be kept.
            other => io::Error::other(other.to_string()),
        }
    }
}

/// Why a coroutine did not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The calling code runs in no coroutine, or in a loop of its own inside of one.
    NoCoroutine,
    /// The coroutine was cancelled and unwinds.
    Cancelled,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCoroutine => {
                "a call that parks was made outside of a coroutine, or in a loop that runs inside of one: make it \
                 inside of ringloop_coro::start, spawn or spawn_local; in async code, await the future"
            }
            Self::Cancelled => "the coroutine was cancelled and unwinds",
        })
    }
}

impl std::error::Error for WaitError {}

impl From<WaitError> for io::Error {
    fn from(error: WaitError) -> Self {
        io::Error::other(error)
    }
}
