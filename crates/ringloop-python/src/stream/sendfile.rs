//! Support for `loop.sendfile`: pauses writing once everything written before is sent.
//!
//! Owns: the future that completes when the write queue is empty; while it is set, writes are
//! rejected. Called by: `methods`, `write` (the queue is empty, or failed) and the module's root (the
//! end).
//!
//! Source: `_SelectorSocketTransport._make_empty_waiter` and its users.

use pyo3::exceptions::{PyConnectionError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::state::Stream_;
use crate::ffi::{Fallible, Obj, Raise as _, imported, intern};

/// Makes the future; it completes at once if nothing is queued.
pub(super) fn make_empty_waiter(this: Stream_<'_, '_>) -> PyResult<Obj> {
    let py = this.py();
    if this.empty_waiter.is_some() {
        return Err(PyRuntimeError::raise("Empty waiter is already set"));
    }
    let waiter = this.base.core(py)?.call_method0(intern!(py, "create_future"))?;
    drop(this.empty_waiter.replace(Some(waiter.clone().into())));
    if this.write.is_empty() {
        emptied(this)?;
    }
    Ok(waiter.into())
}

/// Accepts writes again.
pub(super) fn reset_empty_waiter(this: Stream_<'_, '_>) {
    drop(this.empty_waiter.take());
}

/// Whether writes are rejected.
#[inline]
pub(super) fn in_progress(this: Stream_<'_, '_>) -> bool {
    this.empty_waiter.is_some()
}

#[inline]
pub(super) fn emptied(this: Stream_<'_, '_>) -> PyResult<()> {
    match pending_waiter(this)? {
        Some(waiter) => {
            let py = this.py();
            waiter.call_method1(intern!(py, "set_result"), (py.None(),))?;
            Ok(())
        }
        None => Ok(()),
    }
}

/// A write failed, and the rest will not be sent.
pub(super) fn failed(this: Stream_<'_, '_>, error: &PyErr) -> PyResult<()> {
    if let Some(waiter) = pending_waiter(this)? {
        let py = this.py();
        waiter.call_method1(intern!(py, "set_exception"), (error.value(py),))?;
    }
    Ok(())
}

/// The connection is closed.
pub(super) fn lost(this: Stream_<'_, '_>) -> PyResult<()> {
    if !in_progress(this) {
        return Ok(());
    }
    let py = this.py();
    let error = PyConnectionError::raise("Connection is closed by peer");
    // A poll of the file's sender would keep the socket open, and never end.
    imported!(py, PyAny, "ringloop._sock", "end_sendfile")?.call1((
        this.base.core(py)?,
        Fallible(this.socket.original_fd()),
        error.value(py),
    ))?;
    failed(this, &error)
}

/// A member of `asyncio.constants._SendfileMode`: how `loop.sendfile` starts.
pub(crate) fn mode<'py>(name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    imported!(name.py(), PyAny, "asyncio.constants", "_SendfileMode")?.getattr(name)
}

fn pending_waiter<'py>(this: Stream_<'_, 'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = this.py();
    let Some(waiter) = this.empty_waiter.get(py) else {
        return Ok(None);
    };
    let waiter = waiter.into_bound(py);
    let done = waiter.call_method0(intern!(py, "done"))?.is_truthy()?;
    Ok((!done).then_some(waiter))
}
