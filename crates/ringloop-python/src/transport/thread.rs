//! A transport that is used from another thread than its loop's.
//!
//! asyncio sends in the calling thread and does not notice. Here the state of a connection belongs to
//! the thread that runs the loop, so the call is handed over and made there, in the order of that
//! thread's calls; debug mode says that it should not have been made.
//!
//! Called by: `methods` of streams, of datagram endpoints and of TLS, where `is_elsewhere`. Never does: touch
//! a part of the transport.

use pyo3::prelude::*;
use pyo3::types::PyString;
use ringloop::buf::SendBuf;

use super::Endpoint;
use crate::event_loop::LoopCore;
use crate::ffi::{self, ObjCell, Payload, This, intern};

/// A transport that belongs to a loop.
pub(crate) trait OfLoop: Payload {
    /// The loop.
    fn own_loop(&self) -> &ObjCell;
}

impl<T: Endpoint> OfLoop for T {
    fn own_loop(&self) -> &ObjCell {
        self.loop_()
    }
}

/// Have the loop call a method that takes nothing.
#[cold]
pub(crate) fn hand_over<T: OfLoop>(
    this: This<'_, '_, T>,
    method: &Bound<'_, PyString>,
) -> PyResult<()> {
    let loop_ = checked(this)?;
    let bound = this.object().getattr(method)?;
    loop_.call_method1(intern!(this.py(), "call_soon_threadsafe"), (bound,))?;
    Ok(())
}

/// Have the loop write these bytes.
#[cold]
pub(crate) fn hand_over_bytes<T: OfLoop>(this: This<'_, '_, T>, bufs: &[SendBuf]) -> PyResult<()> {
    let py = this.py();
    let loop_ = checked(this)?;
    let bytes: Vec<u8> = bufs.iter().flat_map(SendBuf::as_slice).copied().collect();
    let write = this.object().getattr(intern!(py, "write"))?;
    let arguments = (write, ffi::new_bytes(py, &bytes)?);
    loop_.call_method1(intern!(py, "call_soon_threadsafe"), arguments)?;
    Ok(())
}

/// The loop; in debug mode, the error that `call_soon` would raise.
pub(crate) fn checked<'py, T: OfLoop>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    let loop_ = this.own_loop().get_or_none(py);
    let loop_ = loop_.cast_into::<LoopCore>()?;
    if loop_.get().debug() {
        loop_.call_method0(intern!(py, "_check_thread"))?;
    }
    Ok(loop_.into_any())
}
