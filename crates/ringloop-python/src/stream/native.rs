//! Direct interface between our own protocols and streams, without a Python object or call.
//!
//! Called by: `tls` (attach, write) and `read` (receive, deliver).
//!
//! Byte path in: `read` → the receiver's `take`, out of the pool's buffer or the loop's scratch
//! memory, with the loop's cell open → its `taken`, with all cells closed.

use std::io;

use pyo3::prelude::*;
use ringloop::buf::SendBuf;

use super::buffered::buffer_updated_failed;
use super::state::{NativeReceiver, Receiver, Stream, Stream_};
use super::write;
use crate::ffi::{self, Obj, Payload};
use crate::transport::base::with_protocol;
use crate::transport::socket;

/// Makes the transport pass bytes to `protocol` by `receiver` while it is the transport's protocol;
/// no effect if the transport is not ours.
pub(crate) fn attach(
    transport: &Bound<'_, PyAny>,
    protocol: Borrowed<'_, '_, PyAny>,
    receiver: &'static NativeReceiver,
) {
    let Some(this) = Stream::native().get(transport) else {
        return;
    };
    ffi::locked(transport, || {
        if this.base.protocol.get_or_none(this.py()).is(protocol) {
            this.read.receiver.set(Receiver::Native(receiver));
        }
    });
}

/// `write` of one of our transports, for bytes that are not shared; any other returns them.
pub(crate) fn write_bytes(
    transport: &Bound<'_, PyAny>,
    bytes: Vec<u8>,
) -> PyResult<Option<Vec<u8>>> {
    match Stream::native().get(transport) {
        Some(this) => {
            let buf = SendBuf::from(bytes);
            ffi::locked(transport, || write::write_buf(this, buf)).map(|()| None)
        }
        None => Ok(Some(bytes)),
    }
}

/// `_force_close` of one of our transports; `false` for any other.
pub(crate) fn force_close(transport: &Bound<'_, PyAny>, error: Option<Obj>) -> PyResult<bool> {
    let Some(this) = Stream::native().get(transport) else {
        return Ok(false);
    };
    ffi::locked(transport, || socket::force_close(this, error)).map(|()| true)
}

/// Receives into the loop's scratch memory, from which the protocol takes the bytes.
pub(super) fn receive(
    this: Stream_<'_, '_>,
    receiver: &'static NativeReceiver,
    asked: usize,
) -> PyResult<io::Result<usize>> {
    let py = this.py();
    let protocol = this.base.protocol.get_or_none(py);
    let fd = this.socket.fd(py);
    let loop_ = this.base.core(py)?;
    let receive = |scratch: &mut _| {
        let bytes = ffi::receive_scratch(scratch, fd, asked)?;
        let held = if bytes.is_empty() { Ok(None) } else { (receiver.take)(&protocol, bytes) };
        Ok((bytes.len(), held))
    };
    let outcome = ffi::locked(&protocol, || loop_.get().scratch.with(receive))?;
    match outcome {
        Ok((0, _)) => Ok(Ok(0)),
        Ok((len, held)) => {
            deliver(this, receiver, held)?;
            Ok(Ok(len))
        }
        Err(error) => Ok(Err(error)),
    }
}

/// The protocol continues with what it has taken.
pub(super) fn deliver(
    this: Stream_<'_, '_>,
    receiver: &'static NativeReceiver,
    held: PyResult<Option<Obj>>,
) -> PyResult<()> {
    let done = held.and_then(|held| {
        with_protocol(this, |protocol| {
            let protocol = protocol.bind(this.py());
            ffi::locked(protocol, || (receiver.taken)(protocol, held))
        })
    });
    match done {
        Ok(_) => Ok(()),
        Err(error) => buffer_updated_failed(this, error),
    }
}
