//! Blocking work beside the coroutines.
//!
//! Called by: coroutines. Never does: block the caller's thread; the engine's pool threads run the call.

use crate::block_on;
use ringloop::JoinError;
use std::io;
use std::panic::resume_unwind;

/// Run `call`, which may block or compute for long, on a pool thread; the coroutine parks until it is over.
///
/// Errors: the system has no thread for it, or the runtime ends.
/// Cancellation: a call cannot be stopped; it runs on, and its result is lost.
///
/// ```
/// let answer = ringloop_coro::start(1, || {
///     ringloop_coro::offload(|| {
///         std::thread::sleep(std::time::Duration::from_millis(1));
///         42
///     })
/// })??;
/// assert_eq!(answer, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// With the panic of `call`; outside of a coroutine.
#[track_caller]
pub fn offload<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    match block_on(async move { ringloop::spawn_blocking(call).await }) {
        Ok(value) => Ok(value),
        Err(JoinError::Panicked(payload)) => resume_unwind(payload),
        Err(error) => Err(error.into()),
    }
}
