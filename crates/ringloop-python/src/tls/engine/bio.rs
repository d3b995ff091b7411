//! The Python methods of `ssl.SSLObject` and `ssl.MemoryBIO`.
//!
//! Called by: [`super::Engine`], always for handshake and shutdown, and otherwise if the structures
//! inside the objects cannot be used. Costs an object or two per record.

use std::mem::MaybeUninit;

use pyo3::exceptions::{PyConnectionError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyType};

use crate::ffi::{self, IntoObject as _, Obj, Raise as _, imported, intern};

/// Result of one step.
pub enum Step {
    /// Done, with this many bytes of plaintext; 0 for handshake and shutdown.
    Done(usize),
    /// More ciphertext is needed (`SSLWantReadError`, `SSLSyscallError`).
    Again,
    /// The peer has sent `close_notify`.
    Closed,
    /// The exception of the `ssl` module.
    Failed(PyErr),
}

/// Calls a method for the handshake or the shutdown.
pub(super) fn negotiate(py: Python<'_>, object: &Obj, method: &Bound<'_, PyString>) -> Step {
    match ffi::call_method(py, method, &[object]) {
        Ok(_) => Step::Done(0),
        Err(error) => step_of(py, error),
    }
}

pub(super) fn read(py: Python<'_>, object: &Obj, memory: &mut [MaybeUninit<u8>]) -> Step {
    let asked: Obj = match memory.len().into_object(py) {
        Ok(asked) => asked.into(),
        Err(error) => return Step::Failed(error),
    };
    let answer = match ffi::call_method(py, intern!(py, "read"), &[object, &asked]) {
        Ok(answer) => answer.into_bound(py),
        Err(error) => return step_of(py, error),
    };
    let bytes = match answer.cast::<PyBytes>() {
        Ok(bytes) => bytes.as_bytes(),
        Err(error) => return Step::Failed(error.into()),
    };
    if bytes.is_empty() {
        return Step::Closed;
    }
    if ffi::copy_into(memory, bytes) < bytes.len() {
        // A user-defined SSLObject may return anything.
        let error = PyRuntimeError::raise("SSLObject.read() returned more than it was asked for");
        return Step::Failed(error);
    }
    Step::Done(bytes.len())
}

pub(super) fn write(py: Python<'_>, object: &Obj, data: &[u8]) -> Step {
    let written = ffi::copy_bytes(py, data)
        .and_then(|data| ffi::call_method(py, intern!(py, "write"), &[object, &data]))
        .and_then(|count| count.bind(py).extract::<usize>());
    match written {
        Ok(count) => Step::Done(count),
        Err(error) => step_of(py, error),
    }
}

pub(super) fn feed(py: Python<'_>, incoming: &Obj, ciphertext: &Obj) -> PyResult<()> {
    ffi::call_method(py, intern!(py, "write"), &[incoming, ciphertext]).map(drop)
}

pub(super) fn take_output(py: Python<'_>, outgoing: &Obj) -> PyResult<Vec<u8>> {
    let bytes = ffi::call_method(py, intern!(py, "read"), &[outgoing])?;
    ffi::try_copy(bytes.bind(py).cast::<PyBytes>()?.as_bytes())
}

pub(super) fn pending(py: Python<'_>, bio: &Obj) -> PyResult<usize> {
    bio.bind(py).getattr(intern!(py, "pending"))?.extract()
}

/// The error after the collector has cleared the connection.
pub(super) fn gone() -> PyErr {
    PyConnectionError::raise("the TLS connection is gone")
}

/// Converts an exception of the `ssl` module into a step.
pub(super) fn step_of(py: Python<'_>, error: PyErr) -> Step {
    match is_again(py, &error) {
        Ok(true) => Step::Again,
        Ok(false) => Step::Failed(error),
        Err(error) => Step::Failed(error),
    }
}

/// Whether an exception means only that more ciphertext is needed.
fn is_again(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    Ok(error.matches(py, imported!(py, PyType, "ssl", "SSLWantReadError")?)?
        || error.matches(py, imported!(py, PyType, "ssl", "SSLSyscallError")?)?)
}
