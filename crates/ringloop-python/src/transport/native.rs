//! How a protocol of ours talks with a stream of ours: without a Python object or call on the way.
//!
//! Called by: `tls` (attach, write) and `read` (receive, deliver). Never does: know what the protocol is.
//!
//! Byte path in: [`super::read`] → the receiver's `take`, out of the pool's buffer or the loop's scratch
//! memory, with the loop's cell open → its `taken`, with all cells closed.

use std::io;

use pyo3::prelude::*;
use ringloop::buf::SendBuf;

use super::base::with_protocol;
use super::{Stream, Stream_, methods, read, socket};
use crate::ffi::{self, Obj, Payload};

/// How a protocol of ours takes bytes. Both are called alone with the protocol (`ffi::locked`).
pub(crate) struct NativeReceiver {
    /// Take bytes. Runs no Python code, because a cell of the loop's is open; what comes back goes to
    /// `taken`.
    pub take: fn(&Bound<'_, PyAny>, &[u8]) -> PyResult<Option<Obj>>,
    /// Go on with what was taken, in the connection's context.
    pub taken: fn(&Bound<'_, PyAny>, Option<Obj>) -> PyResult<()>,
}

/// Hand bytes to `protocol` by `receiver` for as long as it is the transport's; nothing changes where
/// the transport is not ours.
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
            this.read.set_receiver(read::Receiver::Native(receiver));
        }
    });
}

/// `write` of a transport of ours, for bytes that are nobody else's; they come back from any other.
pub(crate) fn write(transport: &Bound<'_, PyAny>, bytes: Vec<u8>) -> PyResult<Option<Vec<u8>>> {
    match Stream::native().get(transport) {
        Some(this) => {
            let buf = SendBuf::from(bytes);
            ffi::locked(transport, || methods::write_buf(this, buf)).map(|()| None)
        }
        None => Ok(Some(bytes)),
    }
}

/// `_force_close` of a transport of ours; `false` where it is another's.
pub(crate) fn force_close(transport: &Bound<'_, PyAny>, error: Option<Obj>) -> PyResult<bool> {
    let Some(this) = Stream::native().get(transport) else {
        return Ok(false);
    };
    ffi::locked(transport, || socket::force_close(this, error)).map(|()| true)
}

/// Receive into the loop's own memory, from where the protocol takes the bytes.
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
        let held = if bytes.is_empty() {
            Ok(None)
        } else {
            (receiver.take)(&protocol, bytes)
        };
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

/// The protocol goes on with what it has taken.
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
        Err(error) => read::buffer_updated_failed(this, error),
    }
}
