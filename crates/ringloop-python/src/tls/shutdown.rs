//! Closing: `close`, the peer's `close_notify`, EOF of the lower stream, errors.
//!
//! Called by: every part of the state machine.
//! Source: the "Shutdown flow" of `asyncio.sslproto.SSLProtocol`.

use pyo3::exceptions::{PyException, PyMemoryError, PyOSError, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::engine::{self, Step};
use super::state::{AppState, State};
use super::{Tls, TlsProtocol, TlsTransport, handshake, incoming, lower, outgoing};
use crate::event_loop::exceptions::{self, leaves_the_loop};
use crate::ffi::{self, Obj, Payload, Raise as _, imported, intern};
use crate::transport::base::{call_handler, log_debug, log_error, step_here};

/// Closes: delivers pending data, sends `close_notify`, and closes the lower transport.
pub(super) fn start(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    if this.state.get().is_over() {
        return Ok(());
    }
    mark_closed(this);
    if this.state.get() == State::DoHandshake {
        return abort(this, None);
    }
    this.set_state(State::Flushing)?;
    let timer = handshake::call_later(
        this,
        &this.timing.shutdown_timeout,
        intern!(py, "_check_shutdown_timeout"),
    );
    let begun = timer.and_then(|timer| {
        drop(this.timing.shutdown_timer.replace(Some(timer)));
        flush(this)
    });
    let begun = incoming::or_again(this, begun);
    or_end(this, begun)
}

/// Without memory for a step the connection ends: no other event would end it.
fn or_end(this: Tls<'_, '_>, done: PyResult<()>) -> PyResult<()> {
    match done {
        Err(error) if error.is_instance_of::<PyMemoryError>(this.py()) => {
            fatal_error(this, error, "Fatal error on SSL protocol").map(drop)
        }
        done => done,
    }
}

/// Marks the application's transport as closed, so that dropping it does not warn.
fn mark_closed(this: Tls<'_, '_>) {
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
    lower::force_close(this, Some(&exception_of(this.py(), error)))
}

/// Delivers pending data, then continues with `close_notify`.
pub(super) fn flush(this: Tls<'_, '_>) -> PyResult<()> {
    incoming::read(this)?;
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
    let cancelled = handshake::cancel(py, &this.timing.shutdown_timer);
    if let Some(error) = error {
        let told = fatal_error(this, error, "Fatal error on transport");
        return told.and(cancelled);
    }
    let Some(lower) = this.lower.get(py) else {
        return cancelled;
    };
    let step = step_here(lower.bind(py), intern!(py, "close"));
    let core = this.core(py)?;
    let closes = core.get().call_soon_or_owe(step, this.object(), None, |protocol, _| {
        TlsProtocol::native().with(protocol, |this| {
            let done = lower::call(this, intern!(this.py(), "close"));
            or_end(this, done)
        })
    });
    cancelled.and(closes)
}

/// Ends at once, without `close_notify`.
pub(super) fn abort(this: Tls<'_, '_>, error: Option<&Obj>) -> PyResult<()> {
    this.set_state(State::Unwrapped)?;
    lower::force_close(this, error)
}

/// The lower transport has received EOF; `true` keeps its other direction open.
pub(super) fn eof_received(this: Tls<'_, '_>) -> PyResult<bool> {
    this.incoming.eof.set(true);
    let ended = lower_ended(this);
    if let Err(error) = &ended
        && leaves_the_loop(this.py(), error)
    {
        return incoming::or_again(this, ended.map(drop)).map(|()| false);
    }
    match ended {
        Err(error) if error.is_instance_of::<PyException>(this.py()) => {
            lower::call(this, intern!(this.py(), "close"))?;
            Err(error)
        }
        result => result,
    }
}

fn lower_ended(this: Tls<'_, '_>) -> PyResult<bool> {
    log_debug(this, "debug", "%r received EOF")?;
    match this.state.get() {
        State::DoHandshake => handshake::cut_off(this)?,
        State::Wrapped => {
            this.set_state(State::Flushing)?;
            if this.incoming.app_paused.get() {
                // The rest is delivered once the application resumes.
                return Ok(true);
            }
            flush(this)?;
        }
        // Interrupted before: handle the end again.
        State::Flushing if !this.incoming.app_paused.get() => flush(this)?,
        State::Flushing => {
            outgoing::encrypt(this)?;
            this.set_state(State::Shutdown)?;
            go_on(this)?;
        }
        State::Shutdown => go_on(this)?,
        State::Unwrapped => {}
    }
    Ok(false)
}

/// The lower transport is closed.
pub(super) fn connection_lost(this: Tls<'_, '_>, error: &Obj) -> PyResult<()> {
    let py = this.py();
    drop(this.outgoing.backlog.take());
    this.outgoing.backlog_bytes.set(0);
    drop(this.engine.take_output(py));
    this.outgoing.lost_writes.count();
    mark_closed(this);
    let told = matches!(this.app_state.get(), AppState::Made | AppState::Eof);
    if this.state.get() != State::DoHandshake && told {
        this.app_state.set(AppState::Lost);
        if let Some(app) = this.app.get(py) {
            let app = app.bind(py);
            let step = step_here(app, intern!(py, "connection_lost"));
            let error = Some(error.clone_ref(py));
            this.core(py)?.get().call_soon_or_owe(
                step,
                app.as_borrowed(),
                error,
                |app, error| {
                    let error = error.map(|error| error.bind(app.py()));
                    app.call_method1(intern!(app.py(), "connection_lost"), (error,)).map(drop)
                },
            )?;
        }
    }
    this.set_state(State::Unwrapped)?;
    drop((
        this.lower.take(),
        this.app_transport.take(),
        this.app.take(),
        this.incoming.buffer.take(),
    ));
    let error = Some(error).filter(|error| !error.bind(py).is_none());
    let woken = handshake::wake_waiter(this, error);
    let cancelled = handshake::cancel(py, &this.timing.shutdown_timer);
    woken.and(cancelled).and(handshake::cancel(py, &this.timing.handshake_timer))
}

/// Ends the connection because of an error, and reports it; returns the exception.
pub(super) fn fatal_error(this: Tls<'_, '_>, error: PyErr, message: &str) -> PyResult<Obj> {
    let py = this.py();
    let is_os_error = error.is_instance_of::<PyOSError>(py);
    let is_cancelled = match imported!(py, PyType, "asyncio", "CancelledError") {
        Ok(class) => error.matches(py, class)?,
        // Out of memory.
        Err(_) => false,
    };
    let exception = error.into_value(py).into_bound(py);
    let object: Obj = exception.clone().into_any().into();
    let lower = this.lower.get_or_none(py);
    lower::force_close(this, Some(&object))?;
    if !is_cancelled {
        let reported = if is_os_error {
            log_error(this, &exception, message)
        } else {
            call_handler(this, &exception, message, &lower, &this.object())
        };
        exceptions::contained(exception, reported)?;
    }
    Ok(object)
}

fn exception_of(py: Python<'_>, error: PyErr) -> Obj {
    error.into_value(py).into_bound(py).into_any().into()
}
