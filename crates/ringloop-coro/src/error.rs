//! The crate's errors, and the payload that unwinds a cancelled coroutine.
//!
//! Owns: [`WaitError`], [`Cancelled`]. Called by: `task` (stores the engine's `JoinError`), `wait`
//! (returns a `WaitError`, throws `Cancelled`), and everything that returns either.

pub use ringloop::JoinError;
use std::any::Any;
use std::fmt;
use std::io;

/// Payload of the panic that unwinds a cancelled coroutine.
#[derive(Debug)]
pub(crate) struct Cancelled;

/// The error of a coroutine that unwound with `payload`.
pub(crate) fn join_error(payload: Box<dyn Any + Send>) -> JoinError {
    if payload.is::<Cancelled>() { JoinError::Cancelled } else { JoinError::Panicked(payload) }
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
