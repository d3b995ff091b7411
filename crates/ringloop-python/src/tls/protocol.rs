//! The Python surface towards the lower transport: `asyncio.BufferedProtocol`.
//!
//! Called by: any transport; ours pass bytes natively instead (`lower`). Arguments are checked
//! here; the parts do the work.

use pyo3::exceptions::{PyAssertionError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyMemoryView};

use super::{Tls, TlsProtocol, handshake, incoming, outgoing, shutdown};
use crate::ffi::{self, Argument, Definition, Obj, Raise as _, intern, members};
use crate::limits;

pub(super) fn define(type_: &mut Definition<TlsProtocol>) {
    members!(type_, TlsProtocol;
        connection_made(transport) => connection_made, "Begin the handshake over this transport.";
        connection_lost(exc) => connection_lost, "The lower transport is gone.";
        get_buffer(sizehint) => get_buffer, "Return where to write ciphertext.";
        buffer_updated(nbytes) => buffer_updated, "Take ciphertext out of the buffer.";
        eof_received() => |this| Ok::<_, PyErr>(shutdown::eof_received(this)?.then_some(true)), "The lower transport has ended its stream.";
        pause_writing() => pause_writing, "The lower transport is full.";
        resume_writing() => resume_writing, "The lower transport takes bytes again.";
        _check_handshake_timeout() => handshake::check_timeout, "End a handshake that takes too long.";
        _check_shutdown_timeout() => shutdown::check_timeout, "End a shutdown that takes too long.";
        _feed(data) => feed, "Take ciphertext that was received before the handshake began.";
        _do_read() => incoming::do_read, "Deliver what can be decrypted.";
        _resume() => incoming::resumed, "Go on after a pause of the user's.";
        get _loop => |this| this.owner.loop_(this.py()), "The loop.";
        get _transport => |this| this.lower.get_or_none(this.py()), "The lower transport; None before connection_made() and after connection_lost().";
        get _app_transport => |this| this.app_transport.get_or_none(this.py()), "The user's transport; None once the connection is lost.";
        get _app_protocol => |this| this.app.get_or_none(this.py()), "The user's protocol; None once the connection is lost.";
        get _sslobj => |this| this.engine.object(this.py()), "The ssl.SSLObject.";
        get _sslcontext => ssl_context, "The ssl.SSLContext it was made with.";
        get _libssl => |this| this.engine.is_direct(), "Whether records go straight to libssl.";
    );
}

fn connection_made(this: Tls<'_, '_>, transport: Argument<'_, '_>) -> PyResult<()> {
    handshake::start(this, &transport)
}

fn connection_lost(this: Tls<'_, '_>, error: Argument<'_, '_>) -> PyResult<()> {
    shutdown::connection_lost(this, &Obj::from_borrowed(error))
}

/// Other transports get memory of this connection, allocated on first request.
fn get_buffer<'py>(this: Tls<'_, 'py>, hint: Argument<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    let hint: isize = hint.extract()?;
    let wanted = match usize::try_from(hint) {
        Ok(hint @ 1..=limits::READ_CHUNK_MAX) => hint,
        _ => limits::READ_CHUNK_MAX,
    };
    if let Some(buffer) = this.incoming.buffer.get(py)
        && buffer.bind(py).len()? >= wanted
    {
        return Ok(buffer.into_bound(py));
    }
    let memory = PyByteArray::new_with(py, wanted, |_| Ok(()))?;
    let view = PyMemoryView::from(&memory)?.into_any();
    drop(this.incoming.buffer.replace(Some(view.clone().into())));
    Ok(view)
}

fn buffer_updated(this: Tls<'_, '_>, count: Argument<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let count: usize = count.extract()?;
    let Some(buffer) = this.incoming.buffer.get(py) else {
        return Err(PyTypeError::raise("buffer_updated() was called before get_buffer()"));
    };
    let held = ffi::with_bytes(buffer.bind(py).as_borrowed(), |bytes| {
        incoming::take(this, &bytes[..count.min(bytes.len())])
    })??;
    drop(buffer);
    incoming::taken(this, held)
}

fn feed(this: Tls<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    match ffi::with_bytes(data, |bytes| incoming::take(this, bytes))?? {
        Some(held) => this.engine.feed(this.py(), &held),
        None => Ok(()),
    }
}

fn pause_writing(this: Tls<'_, '_>) -> PyResult<()> {
    if this.outgoing.lower_paused.replace(true) {
        return Err(PyAssertionError::raise("writing is paused already"));
    }
    Ok(())
}

fn resume_writing(this: Tls<'_, '_>) -> PyResult<()> {
    if !this.outgoing.lower_paused.replace(false) {
        return Err(PyAssertionError::raise("writing is not paused"));
    }
    let done = outgoing::process(this);
    incoming::or_again(this, done)
}

fn ssl_context<'py>(this: Tls<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    this.extra.get_or_none(py).get_item(intern!(py, "sslcontext"))
}
