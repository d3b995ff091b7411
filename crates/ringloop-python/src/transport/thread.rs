//! A transport that is used from another thread than its loop's.
//!
//! asyncio sends in the calling thread and does not notice. Here the state of a connection belongs to
//! the thread that runs the loop, so the call is handed over and made there, in the order of that
//! thread's calls; debug mode says that it should not have been made.
//!
//! Called by: `methods`, and TLS, where `is_elsewhere`. Never does: touch a part of the transport.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use ringloop::buf::SendBuf;

use crate::event_loop::LoopCore;
use crate::ffi::{ObjCell, Payload, This};

/// Have the loop call a method that takes nothing.
#[cold]
pub(crate) fn hand_over<T: Payload>(
    this: This<'_, '_, T>,
    loop_: &ObjCell,
    method: &Bound<'_, PyString>,
) -> PyResult<()> {
    let loop_ = checked(this.py(), loop_)?;
    let bound = this.object().getattr(method)?;
    loop_.call_method1(intern!(this.py(), "call_soon_threadsafe"), (bound,))?;
    Ok(())
}

/// Have the loop write these bytes.
#[cold]
pub(crate) fn hand_over_bytes<T: Payload>(
    this: This<'_, '_, T>,
    loop_: &ObjCell,
    bufs: &[SendBuf],
) -> PyResult<()> {
    let py = this.py();
    let loop_ = checked(py, loop_)?;
    let bytes: Vec<u8> = bufs.iter().flat_map(SendBuf::as_slice).copied().collect();
    let write = this.object().getattr(intern!(py, "write"))?;
    let arguments = (write, PyBytes::new(py, &bytes));
    loop_.call_method1(intern!(py, "call_soon_threadsafe"), arguments)?;
    Ok(())
}

/// The loop; in debug mode, the error that `call_soon` would raise.
fn checked<'py>(py: Python<'py>, loop_: &ObjCell) -> PyResult<Bound<'py, LoopCore>> {
    let loop_ = loop_.get_or_none(py).cast_into::<LoopCore>()?;
    if loop_.get().debug() {
        loop_.call_method0(intern!(py, "_check_thread"))?;
    }
    Ok(loop_)
}
