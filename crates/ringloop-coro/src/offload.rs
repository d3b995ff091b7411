//! Blocking calls beside the coroutines, on the engine's blocking pool.
//!
//! Owns: [`offload`]. Called by: coroutines.

use crate::wait::block_on;
use ringloop::JoinError;
use std::io;
use std::panic::resume_unwind;

/// Runs `call`, which may block or compute for long, on a pool thread, and parks until it returns.
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
/// # Errors
/// The system has no thread for it, or the runtime ends.
///
/// # Panics
/// With the panic of `call`; outside of a coroutine.
///
/// # Cancel safety
/// The call cannot be stopped: it runs on, and its result is lost.
#[track_caller]
pub fn offload<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    match block_on(async move { ringloop::spawn_blocking(call).await }) {
        Ok(value) => Ok(value),
        Err(JoinError::Panicked(payload)) => resume_unwind(payload),
        Err(error) => Err(error.into()),
    }
}
