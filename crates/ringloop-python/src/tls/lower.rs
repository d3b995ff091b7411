//! The transport below TLS.
//!
//! Our own transports are written to without a Python call; any other by asyncio's methods.
//! Everything but writing is rare, and uses the methods in either case. Called by: the parts of the
//! state machine. No effect once the transport is gone.

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{Tls, TlsProtocol, TlsTransport, incoming, outgoing};
use crate::ffi::{self, Obj, Payload, intern};
use crate::stream::NativeReceiver;
use crate::stream::native;

/// How our own transports pass bytes to this protocol.
static RECEIVER: NativeReceiver = NativeReceiver {
    take: |protocol, bytes| {
        TlsProtocol::native().get(protocol).map_or(Ok(None), |this| incoming::take(this, bytes))
    },
    taken: |protocol, held| {
        TlsProtocol::native().with(protocol, |this| incoming::taken(this, held))
    },
};

/// Stores the transport of `connection_made`.
pub(super) fn attach(this: Tls<'_, '_>, lower: &Bound<'_, PyAny>) {
    native::attach(lower, this.object(), &RECEIVER);
    drop(this.lower.replace(Some(lower.clone().into())));
}

/// Writes ciphertext.
pub(super) fn write(this: Tls<'_, '_>, ciphertext: Vec<u8>) -> PyResult<()> {
    let py = this.py();
    let Some(lower) = this.lower.get(py) else {
        return Ok(());
    };
    let bound = lower.bind(py);
    let Some(ciphertext) = native::write_bytes(bound, ciphertext)? else {
        return Ok(());
    };
    if let Some(tls) = TlsTransport::native().get(bound) {
        return ffi::locked(bound, || outgoing::write_through(tls, ciphertext.into()));
    }
    let data = ffi::copy_bytes(py, &ciphertext)?;
    ffi::call_method(py, intern!(py, "write"), &[&lower, &data]).map(drop)
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
