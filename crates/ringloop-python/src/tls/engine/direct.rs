//! Direct calls of the libssl that `_ssl` has loaded, on the structure inside an `ssl.SSLObject`.
//!
//! Owns: the choice of engine (`RINGLOOP_TLS`), and the exceptions of failed calls. Called by:
//! [`super::Engine`], for operations per record, but not for handshake and shutdown.
//!
//! An object is used directly if that skips nothing a Python call would have done:
//! * its `read` and `write` are those of `ssl.SSLObject`;
//! * its context has no keylog file and no message callback. Their exceptions are kept in the
//!   object and raised by its next method, which would be too late here.

use std::mem::MaybeUninit;

use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::bio::{Step, gone, step_of};
use crate::ffi::libssl::{self, Moved, Session};
use crate::ffi::{self, Fallible, Raise as _, imported, intern};

/// Value of `RINGLOOP_TLS`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// Directly if possible.
    Auto,
    /// Directly; an error if no connection of this process can be.
    Direct,
    /// Always by the methods.
    Bio,
}

/// Inspects a fresh object. `None` if its methods must be used.
pub(super) fn adopt(object: &Bound<'_, PyAny>) -> PyResult<Option<Session>> {
    let py = object.py();
    match (choice(py)?, libssl::refusal(py)) {
        (Choice::Bio, _) | (Choice::Auto, Some(_)) => return Ok(None),
        (Choice::Direct, Some(reason)) => {
            let message = format!("RINGLOOP_TLS=direct, but {reason}");
            return Err(PyRuntimeError::raise(message));
        }
        (Choice::Auto | Choice::Direct, None) => {}
    }
    if !has_plain_methods(object)? || has_hooks(&object.getattr(intern!(py, "context"))?) {
        return Ok(None);
    }
    let socket = object.getattr(intern!(py, "_sslobj"))?;
    Ok(Session::adopt(&socket))
}

#[inline]
pub(super) fn read(py: Python<'_>, session: &Session, memory: &mut [MaybeUninit<u8>]) -> Step {
    match session.read(py, memory) {
        Moved::Bytes(count) => Step::Done(count),
        Moved::WantsInput => Step::Again,
        Moved::Closed => Step::Closed,
        Moved::Failed | Moved::NoMemory => failed(py, session, None),
    }
}

#[inline]
pub(super) fn write(py: Python<'_>, session: &Session, data: &[u8]) -> Step {
    match session.write(py, data) {
        Moved::Bytes(count) => Step::Done(count),
        Moved::WantsInput => Step::Again,
        Moved::NoMemory => Step::Failed(PyMemoryError::raise_bare()),
        Moved::Closed | Moved::Failed => failed(py, session, Some(data)),
    }
}

/// Makes `_ssl` raise the exception of a failed call.
///
/// A failed connection stays failed in OpenSSL: another call returns at once and leaves the
/// error queue unchanged, where `_ssl` finds the reasons. `do_handshake` loses no bytes if the
/// connection unexpectedly works.
#[cold]
fn failed(py: Python<'_>, session: &Session, unsent: Option<&[u8]>) -> Step {
    let Some(socket) = session.socket(py) else {
        return Step::Failed(gone());
    };
    let socket = socket.into_bound(py);
    let mut raised = socket.call_method0(intern!(py, "do_handshake"));
    session.clear_errors();
    if raised.is_ok() {
        // The connection works, but the call failed: it is repeated for its exception.
        raised = match unsent {
            Some(data) => ffi::new_bytes(py, data)
                .and_then(|data| socket.call_method1(intern!(py, "write"), (data,))),
            None => socket.call_method1(intern!(py, "read"), (Fallible(1),)),
        };
    }
    match raised {
        Err(error) => step_of(py, error),
        Ok(_) => Step::Failed(PyRuntimeError::raise("libssl reported an error and denies it")),
    }
}

/// Reads `RINGLOOP_TLS`.
fn choice(py: Python<'_>) -> PyResult<Choice> {
    let environ = py.import(intern!(py, "os"))?.getattr(intern!(py, "environ"))?;
    let value = environ
        .call_method1(intern!(py, "get"), (intern!(py, "RINGLOOP_TLS"), intern!(py, "auto")))?;
    match value.cast::<PyString>()?.to_str()? {
        "auto" | "" => Ok(Choice::Auto),
        "direct" => Ok(Choice::Direct),
        "bio" => Ok(Choice::Bio),
        other => Err(PyValueError::raise(format!(
            "RINGLOOP_TLS is {other:?}; it is one of auto, direct, bio"
        ))),
    }
}

/// Whether an object reads and writes as `ssl.SSLObject` does.
fn has_plain_methods(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let plain = imported!(py, PyType, "ssl", "SSLObject")?;
    let type_ = object.get_type();
    if type_.is(plain) {
        return Ok(true);
    }
    if !type_.is_subclass(plain)? {
        return Ok(false);
    }
    for name in [intern!(py, "read"), intern!(py, "write")] {
        if !type_.getattr(name)?.is(&plain.getattr(name)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a context has a hook whose exception our call would miss.
fn has_hooks(context: &Bound<'_, PyAny>) -> bool {
    let py = context.py();
    // An attribute that this CPython lacks cannot be set.
    for name in [intern!(py, "keylog_filename"), intern!(py, "_msg_callback")] {
        if let Ok(hook) = context.getattr(name)
            && !hook.is_none()
        {
            return true;
        }
    }
    false
}

/// Say how the TLS connections of this process go: "direct" or "bio", and for the latter why.
#[pyfunction]
pub fn tls_engine(py: Python<'_>) -> PyResult<Fallible<(&'static str, Option<&'static str>)>> {
    Ok(Fallible(match (choice(py)?, libssl::refusal(py)) {
        (Choice::Bio, _) => ("bio", Some("RINGLOOP_TLS=bio")),
        (_, Some(reason)) => ("bio", Some(reason)),
        (_, None) => ("direct", None),
    }))
}
