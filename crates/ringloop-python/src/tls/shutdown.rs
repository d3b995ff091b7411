//! Every way to the end: `close`, the peer's `close_notify`, the end of the lower stream, errors.
//!
//! Called by: every part of the state machine. Never does: touch the queues of the other parts.
//! Source: the "Shutdown flow" of `asyncio.sslproto.SSLProtocol`.

use pyo3::exceptions::{PyException, PyOSError, PyTimeoutError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use super::engine::{self, Step};
use super::state::{AppState, State};
use super::{
    Tls, TlsTransport, call_exception_handler, handshake, incoming, log_debug, lower, outgoing,
};
use crate::ffi::{self, Obj, Payload};

/// Close: deliver what is there, say goodbye, and close the lower transport.
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
    )?;
    drop(this.timing.shutdown_timer.replace(Some(timer)));
    flush(this)
}

/// The user's transport counts as closed, so that nobody complains when it is dropped.
fn mark_closed(this: Tls<'_, '_>) {
    let py = this.py();
    let transport = this.app_transport.get_or_none(py);
    if let Some(found) = TlsTransport::native().get(&transport) {
        ffi::locked(&transport, || found.closed.set(true));
    }
}

/// The time is up.
pub(super) fn check_timeout(this: Tls<'_, '_>) -> PyResult<()> {
    if !matches!(this.state.get(), State::Flushing | State::Shutdown) {
        return Ok(());
    }
    let error = PyTimeoutError::new_err("SSL shutdown timed out");
    lower::force_close(this, Some(&exception_of(this.py(), error)))
}

/// Deliver what is there, then go on to the goodbye.
pub(super) fn flush(this: Tls<'_, '_>) -> PyResult<()> {
    incoming::read(this)?;
    this.set_state(State::Shutdown)?;
    go_on(this)
}

/// Send `close_notify`, or look for the peer's.
pub(super) fn go_on(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    // Who has ended his stream waits for no goodbye.
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
    incoming::tell_eof(this)?;
    complete(this, None)
}

fn complete(this: Tls<'_, '_>, error: Option<PyErr>) -> PyResult<()> {
    let py = this.py();
    handshake::cancel(py, &this.timing.shutdown_timer)?;
    if let Some(error) = error {
        return fatal_error(this, error, "Fatal error on transport").map(drop);
    }
    let Some(lower) = this.lower.get(py) else {
        return Ok(());
    };
    let close: Obj = lower.bind(py).getattr(intern!(py, "close"))?.into();
    let context = ffi::context_copy_current(py)?;
    this.core(py)?.get().call_soon_step(close, None, context)
}

/// End at once, without a goodbye.
pub(super) fn abort(this: Tls<'_, '_>, error: Option<&Obj>) -> PyResult<()> {
    this.set_state(State::Unwrapped)?;
    lower::force_close(this, error)
}

/// The lower transport has ended its stream; `true` keeps its other direction open.
pub(super) fn eof_received(this: Tls<'_, '_>) -> PyResult<bool> {
    this.incoming.eof.set(true);
    match lower_ended(this) {
        Err(error) if error.is_instance_of::<PyException>(this.py()) => {
            lower::call(this, intern!(this.py(), "close"))?;
            Err(error)
        }
        result => result,
    }
}

fn lower_ended(this: Tls<'_, '_>) -> PyResult<bool> {
    log_debug(this, "%r received EOF")?;
    match this.state.get() {
        State::DoHandshake => handshake::cut_off(this)?,
        State::Wrapped => {
            this.set_state(State::Flushing)?;
            if this.incoming.app_paused.get() {
                // What is left is delivered once the user wants it.
                return Ok(true);
            }
            flush(this)?;
        }
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

/// The lower transport is gone.
pub(super) fn connection_lost(this: Tls<'_, '_>, error: &Obj) -> PyResult<()> {
    let py = this.py();
    drop(this.outgoing.backlog.take());
    this.outgoing.backlog_bytes.set(0);
    drop(this.engine.take_output(py)?);
    let lost = this.outgoing.lost_writes.get();
    this.outgoing.lost_writes.set(lost + 1);
    mark_closed(this);
    let told = matches!(this.app_state.get(), AppState::Made | AppState::Eof);
    if this.state.get() != State::DoHandshake && told {
        this.app_state.set(AppState::Lost);
        if let Some(app) = this.app.get(py) {
            let callback: Obj = app.bind(py).getattr(intern!(py, "connection_lost"))?.into();
            let context = ffi::context_copy_current(py)?;
            this.core(py)?
                .get()
                .call_soon_step(callback, Some(error.clone_ref(py)), context)?;
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
    handshake::cancel(py, &this.timing.shutdown_timer)?;
    handshake::cancel(py, &this.timing.handshake_timer)?;
    woken
}

/// End the connection because of an error, and report it; returns the exception.
pub(super) fn fatal_error(this: Tls<'_, '_>, error: PyErr, message: &str) -> PyResult<Obj> {
    static CANCELLED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = this.py();
    let is_os_error = error.is_instance_of::<PyOSError>(py);
    let is_cancelled = error.matches(py, CANCELLED.import(py, "asyncio", "CancelledError")?)?;
    let exception = exception_of(py, error);
    let lower = this.lower.get_or_none(py);
    lower::force_close(this, Some(&exception))?;
    if is_os_error {
        if this.core(py)?.get().debug() {
            let logger = py.import("asyncio.log")?.getattr("logger")?;
            let keywords = PyDict::new(py);
            keywords.set_item("exc_info", exception.bind(py))?;
            logger.call_method("debug", ("%r: %s", this.object(), message), Some(&keywords))?;
        }
    } else if !is_cancelled {
        let context = PyDict::new(py);
        context.set_item("message", message)?;
        context.set_item("exception", exception.bind(py))?;
        context.set_item("transport", lower)?;
        context.set_item("protocol", this.object())?;
        call_exception_handler(this, &context)?;
    }
    Ok(exception)
}

fn exception_of(py: Python<'_>, error: PyErr) -> Obj {
    error.into_value(py).into_bound(py).into_any().into()
}
