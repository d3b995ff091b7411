//! The writing side: from `transport.write` to the lower transport.
//!
//! Called by: `transport` (write), `incoming` and `handshake` (output caused by reading),
//! `protocol` (the lower transport's flow control).
//!
//! Byte path: `transport.write` → [`write`] → [`encrypt`] → [`process`] → `transport::write`.
//! Source: the "Outgoing flow" of `asyncio.sslproto.SSLProtocol`.

use pyo3::prelude::*;
use ringloop::buf::SendBuf;

use super::engine::Step;
use super::lower;
use super::state::{State, Tls, TlsProtocol, TlsTransport, Transport, is_exception};
use crate::event_loop::exceptions;
use crate::ffi::{self, Payload, intern};
use crate::limits;
use crate::stream::native;
use crate::transport::base::{call_handler, tell};

/// Bytes not yet passed to the lower transport.
pub(super) fn size(this: Tls<'_, '_>) -> PyResult<usize> {
    Ok(this.engine.outgoing_len(this.py())? + this.outgoing.backlog.size())
}

/// Writes to one of our TLS transports, from the one above it.
pub(super) fn write_through(transport: Transport<'_, '_>, buf: SendBuf) -> PyResult<()> {
    let protocol = transport.protocol.get_or_none(transport.py());
    match TlsProtocol::native().get(&protocol) {
        Some(this) => ffi::locked(&protocol, || write(this, std::iter::once(buf))),
        None => Ok(()),
    }
}

/// Takes over plaintext, and sends it once the handshake is done.
pub(super) fn write(this: Tls<'_, '_>, bufs: impl Iterator<Item = SendBuf>) -> PyResult<()> {
    if this.state.get().is_over() {
        return dropped(this);
    }
    this.outgoing.backlog.push(bufs.filter(|buf| !buf.is_empty()))?;
    if this.state.get() != State::Wrapped {
        return Ok(());
    }
    match encrypt(this) {
        Err(error) if is_exception(this.py(), &error) => {
            lower::fatal_error(this, error, "Fatal error on SSL protocol").map(drop)
        }
        result => result,
    }
}

/// Drops writes after the end.
pub(super) fn dropped(this: Tls<'_, '_>) -> PyResult<()> {
    this.outgoing.lost_writes.drop_write(&this.object(), "SSL connection is closed")
}

/// Encrypts the backlog and sends it.
///
/// A long buffer is processed in parts, so that neither the engine's ciphertext nor ours grows with
/// it. All of it goes to the lower transport even if that pauses meanwhile: asyncio passes it in
/// one piece, and the application's flow control counts what comes after.
pub(super) fn encrypt(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let flowing = !this.outgoing.lower_paused.get();
    loop {
        // No cell is open while the engine works: it may call Python.
        let Some(mut front) = this.outgoing.backlog.pop_front() else {
            break;
        };
        let bytes = front.as_slice();
        let part = &bytes[..bytes.len().min(limits::TLS_WRITE_PART)];
        let step = this.engine.write(py, part);
        if let Step::Done(count) = step {
            front.advance(count);
        }
        if !front.is_empty() {
            this.outgoing.backlog.push_front(front);
            if flowing && matches!(step, Step::Done(_)) {
                send(this)?;
            }
        }
        match step {
            Step::Done(_) => {}
            Step::Again | Step::Closed => break,
            Step::Failed(error) => return Err(error),
        }
    }
    if flowing {
        send(this)?;
    }
    control_app(this)
}

/// Sends the engine's output, unless the lower transport is full.
pub(super) fn process(this: Tls<'_, '_>) -> PyResult<()> {
    if !this.outgoing.lower_paused.get() {
        send(this)?;
    }
    control_app(this)
}

fn send(this: Tls<'_, '_>) -> PyResult<()> {
    let ciphertext = this.engine.take_output(this.py())?;
    if ciphertext.is_empty() {
        return Ok(());
    }
    write_to_lower(this, ciphertext)
}

/// Writes ciphertext.
fn write_to_lower(this: Tls<'_, '_>, ciphertext: Vec<u8>) -> PyResult<()> {
    let py = this.py();
    let Some(lower) = this.lower.get(py) else {
        return Ok(());
    };
    let bound = lower.bind(py);
    let Some(ciphertext) = native::write_bytes(bound, ciphertext)? else {
        return Ok(());
    };
    if let Some(tls) = TlsTransport::native().get(bound) {
        return ffi::locked(bound, || write_through(tls, ciphertext.into()));
    }
    let data = ffi::copy_bytes(py, &ciphertext)?;
    ffi::call_method(py, intern!(py, "write"), &[&lower, &data]).map(drop)
}

/// Pauses or resumes the application's protocol.
pub(super) fn control_app(this: Tls<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let size = size(this)?;
    let flow = &this.outgoing.flow;
    let (method, failure) = if flow.pauses_at(size) {
        (intern!(py, "pause_writing"), "protocol.pause_writing() failed")
    } else if flow.resumes(size) {
        (intern!(py, "resume_writing"), "protocol.resume_writing() failed")
    } else {
        return Ok(());
    };
    let Some(app) = this.app.get(py) else {
        return Ok(());
    };
    match tell(this, &app, method, None) {
        Ok(_) => Ok(()),
        Err(error) => exceptions::contain(py, error, |exception| {
            let transport = this.app_transport.get_or_none(py);
            call_handler(this, exception, failure, &transport, &this.object())
        }),
    }
}
