//! How a pipe transport ends: closed, aborted, failed, at the end of the stream, or forgotten.
//!
//! ```text
//!   Open ──close() with bytes queued──▶ Closing ──all written──┐
//!     └──close(), abort(), an error, the peer is gone──▶ Losing ──connection_lost──▶ Lost, closed
//! ```
//! The polls end before the descriptor is closed, and the driver is told of it.
//!
//! Called by: both ends. Never does: read or write.

use pyo3::prelude::*;

use super::Pipe;
use super::poll::{self, Role};
use crate::ffi::{self, Fallible, Obj, This, intern};
use crate::transport::{lifecycle as shared, tell};

/// Where a transport stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// Closed by the user; what was queued is still being written.
    Closing,
    /// `connection_lost` is scheduled.
    Losing,
    /// `connection_lost` was called.
    Lost,
}

/// Stop everything and schedule `connection_lost`.
pub(super) fn lose<T: Pipe>(this: This<'_, '_, T>, error: Option<Obj>) -> PyResult<()> {
    let py = this.py();
    let end = this.end();
    if matches!(end.state.get(), State::Losing | State::Lost) {
        return Ok(());
    }
    end.state.set(State::Losing);
    stop_polling(this)?;
    let error = error.unwrap_or_else(|| py.None().into_bound(py).into());
    let name = intern!(py, "_call_connection_lost");
    let step = shared::step(this, name, || ffi::context_copy_current(py));
    let core = end.core(py)?;
    core.get()
        .call_soon_or_owe(step, this.object(), Some(error), |object, error| {
            match (T::native().get(object), error) {
                (Some(this), Some(error)) => connection_lost(this, error),
                _ => Ok(()),
            }
        })
}

/// `call_soon` in a copy of the running context.
pub(super) fn schedule<T: Pipe>(
    this: This<'_, '_, T>,
    callback: Obj,
    argument: Option<Obj>,
) -> PyResult<()> {
    let py = this.py();
    let context = ffi::context_copy_current(py)?;
    this.end()
        .core(py)?
        .get()
        .call_soon_step(callback, argument, context)
}

/// Report an error that ends the transport, and end it. An everyday error goes to the log of debug
/// mode only.
pub(super) fn fatal_error<T: Pipe>(
    this: This<'_, '_, T>,
    error: PyErr,
    message: &str,
    is_everyday: bool,
) -> PyResult<()> {
    let (exception, reported) = shared::report_ending(this, error, message, is_everyday)?;
    let lost = lose(this, Some(exception));
    reported.and(lost)
}

/// What failed in the loop's work for a pipe, such as an allocation, ends it.
pub(super) fn or_end<T: Pipe>(this: This<'_, '_, T>, done: PyResult<()>) -> PyResult<()> {
    match done {
        Err(error) if !this.end().is_closing() => {
            fatal_error(this, error, "Fatal error on pipe transport", false)
        }
        done => done,
    }
}

/// `_call_connection_lost`: tell the protocol, then let go of everything.
pub(super) fn connection_lost<T: Pipe>(this: This<'_, '_, T>, error: &Obj) -> PyResult<()> {
    let py = this.py();
    let end = this.end();
    if end.state.replace(State::Lost) == State::Lost {
        return Ok(());
    }
    let told = match end.protocol.get(py) {
        Some(protocol) => {
            let method = intern!(py, "connection_lost");
            tell(this, &protocol, method, Some(error)).map(drop)
        }
        None => Ok(()),
    };
    let stopped = stop_polling(this);
    let released = end.core(py)?.get().release_descriptor(end.fd);
    let closed = close_pipe(this);
    drop(end.protocol.take());
    told.and(stopped).and(released).and(closed)
}

fn stop_polling<T: Pipe>(this: This<'_, '_, T>) -> PyResult<()> {
    poll::stop(this, Role::Write)?;
    poll::stop(this, Role::Read)
}

fn close_pipe<T: Pipe>(this: This<'_, '_, T>) -> PyResult<()> {
    if let Some(pipe) = this.end().pipe.take() {
        let py = this.py();
        pipe.bind(py).call_method0(intern!(py, "close"))?;
    }
    Ok(())
}

/// The loop was closed under the transport; its finaliser closes the pipe.
pub(super) fn abandoned<T: Pipe>(this: This<'_, '_, T>) {
    for role in [Role::Read, Role::Write] {
        if let Some(poller) = this.poller(role) {
            poller.forget();
        }
    }
}

/// `__del__`: nobody holds the transport, and it was never closed.
pub(super) fn finalize<T: Pipe>(this: This<'_, '_, T>) {
    if !this.end().pipe.is_some() {
        return;
    }
    // The warning shows the transport as it is: open.
    for result in [shared::warn_unclosed(this), close_pipe(this)] {
        if let Err(error) = result {
            error.write_unraisable(this.py(), Some(&this.object()));
        }
    }
}

/// Write `%r` and `text` to asyncio's log, in debug mode.
pub(super) fn log_debug<T: Pipe>(this: This<'_, '_, T>, level: &str, text: &str) -> PyResult<()> {
    let py = this.py();
    if this.end().core(py)?.get().debug() {
        let logger = py
            .import(intern!(py, "asyncio.log"))?
            .getattr(intern!(py, "logger"))?;
        let level = ffi::new_str(py, level)?;
        logger.call_method1(level, (Fallible(text), this.object()))?;
    }
    Ok(())
}
