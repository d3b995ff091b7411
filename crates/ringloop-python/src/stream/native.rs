//! Direct interface between our own protocols and streams, without a Python object or call.
//!
//! Called by: `tls` (attach, write), `streams` (write, flow control) and `read` (receive, deliver).
//!
//! Byte path in: `read` → the receiver's `take`, out of the pool's buffer or the loop's scratch
//! memory, with the loop's cell open → its `taken`, with all cells closed.

use std::io;
use std::mem::MaybeUninit;

use pyo3::prelude::*;
use ringloop::buf::SendBuf;
use ringloop::embed::sys::libc;
use ringloop::embed::sys::socket as syscalls;

use super::buffered::buffer_updated_failed;
use super::state::{NativeReceiver, Receiver, Stream, Stream_};
use super::write;
use crate::ffi::{self, Obj, Payload};
use crate::limits;
use crate::transport::base::{self, with_protocol};
use crate::transport::reader::{ReaderFunctions, Receive};
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

/// `write` of one of our transports; `None` for any other.
#[inline]
pub(crate) fn write(
    transport: &Bound<'_, PyAny>,
    data: Borrowed<'_, '_, PyAny>,
) -> Option<PyResult<()>> {
    let this = Stream::native().get(transport)?;
    Some(
        ffi::take_over(data).and_then(|buf| ffi::locked(transport, || write::write_buf(this, buf))),
    )
}

/// `is_closing` of one of our transports; `None` for any other.
#[inline]
pub(crate) fn is_closing(transport: &Bound<'_, PyAny>) -> Option<PyResult<bool>> {
    let this = Stream::native().get(transport)?;
    Some(ffi::locked(transport, || base::is_closing(this)))
}

/// `resume_reading` or `pause_reading` of one of our transports; `false` for any other.
pub(crate) fn set_reading(transport: &Bound<'_, PyAny>, reads: bool) -> PyResult<bool> {
    let Some(this) = Stream::native().get(transport) else {
        return Ok(false);
    };
    ffi::locked(transport, || base::set_reading(this, !reads)).map(|()| true)
}

/// Passes bytes to the protocol of native streams, which may return them
/// (`ReaderFunctions::feed`). It calls no user's code, so it needs no context.
#[inline]
pub(super) fn feed(
    this: Stream_<'_, '_>,
    functions: &'static ReaderFunctions,
    bytes: Obj,
) -> PyResult<Option<Obj>> {
    let protocol = this.base.protocol.get_or_none(this.py());
    ffi::released(&this.object(), || (functions.feed)(&protocol, bytes))
}

/// Copies bytes into the result that a native reader waits for; returns how many.
pub(super) fn fill(this: Stream_<'_, '_>, bytes: &[u8]) -> PyResult<usize> {
    let Receiver::Reader(functions) = this.read.receiver.get() else {
        return Ok(0);
    };
    let mut copy = |room: &mut [MaybeUninit<u8>]| Ok(ffi::copy_into(room, bytes));
    match fill_by(this, functions, &mut copy)? {
        Some(Ok(count)) => Ok(count),
        _ => Ok(0),
    }
}

/// Receives into the result that a native reader waits for, and says how much was asked for; `None` if it
/// waits for none.
pub(super) fn receive_into_result(
    this: Stream_<'_, '_>,
    functions: &'static ReaderFunctions,
    asked: &mut usize,
) -> PyResult<Option<io::Result<usize>>> {
    let fd = this.socket.fd(this.py());
    let mut receive = |room: &mut [MaybeUninit<u8>]| {
        *asked = room.len().min(limits::READ_CHUNK_MAX);
        syscalls::recv(fd, &mut room[..*asked], libc::MSG_DONTWAIT)
    };
    fill_by(this, functions, &mut receive)
}

fn fill_by(
    this: Stream_<'_, '_>,
    functions: &'static ReaderFunctions,
    receive: Receive<'_>,
) -> PyResult<Option<io::Result<usize>>> {
    let protocol = this.base.protocol.get_or_none(this.py());
    ffi::released(&this.object(), || (functions.fill)(&protocol, receive))
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
