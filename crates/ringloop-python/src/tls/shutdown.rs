//! Reading up to the end, and closing: `close`, the peer's `close_notify`, EOF of the lower stream,
//! errors.
//!
//! Called by: `handshake`, and the two surfaces.
//! Source: the "Shutdown flow" of `asyncio.sslproto.SSLProtocol`.

use pyo3::exceptions::{PyMemoryError, PyTimeoutError};
use pyo3::prelude::*;

use super::engine::{self, Step};
use super::state::{State, Tls, TlsTransport, call_later, cancel, is_exception};
use super::{incoming, lower, outgoing};
use crate::event_loop::exceptions::leaves_the_loop;
use crate::ffi::{self, Payload, Raise as _, intern};
use crate::transport::base::call_soon;

/// Closes: delivers pending data, sends `close_notify`, and closes the lower transport.
pub(super) fn start(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    if this.state.get().is_over() {
        return Ok(());
    }
    mark_closed(this);
    if this.state.get() == State::DoHandshake {
        return lower::abort(this, None);
    }
    this.set_state(State::Flushing)?;
    let timer =
        call_later(this, &this.timing.shutdown_timeout, intern!(py, "_check_shutdown_timeout"));
    let begun = timer.and_then(|timer| {
        drop(this.timing.shutdown_timer.replace(Some(timer)));
        flush(this)
    });
    let begun = or_again(this, begun);
    or_end(this, begun)
}

/// Without memory for a step the connection ends: no other event would end it.
fn or_end(this: Tls<'_, '_>, done: PyResult<()>) -> PyResult<()> {
    match done {
        Err(error) if error.is_instance_of::<PyMemoryError>(this.py()) => {
            lower::fatal_error(this, error, "Fatal error on SSL protocol").map(drop)
        }
        done => done,
    }
}

/// Delivers what can be decrypted, and sends the resulting output; the peer's `close_notify` closes.
pub(super) fn read(this: Tls<'_, '_>) -> PyResult<()> {
    if !matches!(this.state.get(), State::Wrapped | State::Flushing) {
        return Ok(());
    }
    let done = incoming::read(this).and_then(|is_closed| {
        if !is_closed {
            return Ok(());
        }
        let told = incoming::tell_eof(this);
        let started = start(this);
        told.and(started)
    });
    match done {
        Err(error) if is_exception(this.py(), &error) => {
            lower::fatal_error(this, error, "Fatal error on SSL protocol").map(drop)
        }
        result => result,
    }
}

/// One pass after a buffer was full.
pub(super) fn do_read(this: Tls<'_, '_>) -> PyResult<()> {
    let done = read(this);
    or_again(this, done)
}

/// An exception of the application's protocol may leave the loop, with undelivered records or an
/// unsent answer, for which the lower transport has no further event: the next run continues with
/// them.
pub(super) fn or_again(this: Tls<'_, '_>, done: PyResult<()>) -> PyResult<()> {
    let py = this.py();
    let Err(error) = done else { return Ok(()) };
    if leaves_the_loop(py, &error) && this.state.get() != State::Unwrapped {
        again(this)?;
    }
    Err(error)
}

/// Calls [`resumed`] in the next pass.
pub(super) fn again(this: Tls<'_, '_>) -> PyResult<()> {
    call_soon(this, intern!(this.py(), "_resume"))
}

/// `resume_reading` of the application's transport.
pub(super) fn resume(this: Tls<'_, '_>) -> PyResult<()> {
    if !this.incoming.app_paused.replace(false) {
        return Ok(());
    }
    again(this)
}

/// One pass after `resume`, after the end of a handshake, or after an exception that left the loop.
pub(super) fn resumed(this: Tls<'_, '_>) -> PyResult<()> {
    this.incoming.waiter_is_next.set(false);
    let done = match this.state.get() {
        State::Wrapped => read(this),
        State::Flushing if this.incoming.app_paused.get() => Ok(()),
        State::Flushing => flush(this),
        State::Shutdown => go_on(this),
        State::Unwrapped | State::DoHandshake => Ok(()),
    };
    or_again(this, done)
}

/// Marks the application's transport as closed, so that dropping it does not warn.
pub(super) fn mark_closed(this: Tls<'_, '_>) {
    let py = this.py();
    let transport = this.app_transport.get_or_none(py);
    if let Some(found) = TlsTransport::native().get(&transport) {
        ffi::locked(&transport, || found.closed.set(true));
    }
}

/// The timeout has expired.
pub(super) fn check_timeout(this: Tls<'_, '_>) -> PyResult<()> {
    if !matches!(this.state.get(), State::Flushing | State::Shutdown) {
        return Ok(());
    }
    let error = PyTimeoutError::raise("SSL shutdown timed out");
    lower::force_close(this, Some(&lower::exception_of(this.py(), error)))
}

/// Delivers pending data, then continues with `close_notify`.
pub(super) fn flush(this: Tls<'_, '_>) -> PyResult<()> {
    read(this)?;
    this.set_state(State::Shutdown)?;
    go_on(this)
}

/// Sends `close_notify`, or waits for the peer's.
pub(super) fn go_on(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    // A peer that has sent EOF does not wait for `close_notify`.
    if !this.incoming.eof.get() {
        match this.engine.shutdown(py) {
            Step::Done(_) | Step::Closed => {}
            Step::Again => return outgoing::process(this),
            Step::Failed(error) if engine::is_ssl_error(py, &error)? => {
                return complete(this, Some(error));
            }
            Step::Failed(error) => return Err(error),
        }
    }
    outgoing::process(this)?;
    let told = incoming::tell_eof(this);
    let completed = complete(this, None);
    told.and(completed)
}

fn complete(this: Tls<'_, '_>, error: Option<PyErr>) -> PyResult<()> {
    let py = this.py();
    let cancelled = cancel(py, &this.timing.shutdown_timer);
    if let Some(error) = error {
        let told = lower::fatal_error(this, error, "Fatal error on transport");
        return told.and(cancelled);
    }
    if !this.lower.is_some() {
        return cancelled;
    }
    cancelled.and(call_soon(this, intern!(py, "_close_lower")))
}

/// The last step: closes the lower transport.
pub(super) fn close_lower(this: Tls<'_, '_>) -> PyResult<()> {
    let done = lower::call(this, intern!(this.py(), "close"));
    or_end(this, done)
}
