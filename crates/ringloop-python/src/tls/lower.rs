//! The transport below TLS, and how a connection ends at once.
//!
//! Our own transports are written to without a Python call (`outgoing`); any other by asyncio's
//! methods. Everything else is rare, and uses the methods in either case. Called by: the parts of the
//! state machine. No effect once the transport is gone.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::state::{State, Tls};
use crate::event_loop::exceptions;
use crate::ffi::{self, Obj, imported, intern};
use crate::stream::{NativeReceiver, native};
use crate::transport::base::{call_handler, log_error};

/// Stores the transport of `connection_made`.
pub(super) fn attach(
    this: Tls<'_, '_>,
    lower: &Bound<'_, PyAny>,
    receiver: &'static NativeReceiver,
) {
    native::attach(lower, this.object(), receiver);
    drop(this.lower.replace(Some(lower.clone().into())));
}

/// Calls a method without arguments.
pub(super) fn call(this: Tls<'_, '_>, method: &Bound<'_, PyString>) -> PyResult<()> {
    match this.lower.get(this.py()) {
        Some(lower) => ffi::call_method(this.py(), method, &[&lower]).map(drop),
        None => Ok(()),
    }
}

/// Ends the connection at once, with this exception for `connection_lost`.
pub(super) fn force_close(this: Tls<'_, '_>, error: Option<&Obj>) -> PyResult<()> {
    let py = this.py();
    let Some(lower) = this.lower.get(py) else {
        return Ok(());
    };
    // Without a Python object, for which there may be no memory.
    if native::force_close(lower.bind(py), error.map(|error| error.clone_ref(py)))? {
        return Ok(());
    }
    let method = intern!(py, "_force_close");
    // asyncio's own transports all have it; others need only be an `asyncio.Transport`.
    if !lower.bind(py).hasattr(method)? {
        return ffi::call_method(py, intern!(py, "abort"), &[&lower]).map(drop);
    }
    let none = py.None().into_bound(py).into();
    ffi::call_method(py, method, &[&lower, error.unwrap_or(&none)]).map(drop)
}

/// Ends at once, without `close_notify`.
pub(super) fn abort(this: Tls<'_, '_>, error: Option<&Obj>) -> PyResult<()> {
    this.set_state(State::Unwrapped)?;
    force_close(this, error)
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
    force_close(this, Some(&object))?;
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

pub(super) fn exception_of(py: Python<'_>, error: PyErr) -> Obj {
    error.into_value(py).into_bound(py).into_any().into()
}
