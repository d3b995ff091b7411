//! The Python surface towards the lower transport: `asyncio.BufferedProtocol`.
//!
//! Called by: any transport; ours hand their bytes over natively instead (`lower`). Never does: more
//! than check arguments and hand over to a part.

use pyo3::exceptions::{PyAssertionError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyMemoryView};

use super::{Tls, TlsProtocol, handshake, incoming, outgoing, shutdown};
use crate::ffi::{self, Args, Definition, Obj, Raise as _, intern, members};
use crate::limits;

/// List the members.
pub(super) fn define(type_: &mut Definition<TlsProtocol>) {
    members!(type_, TlsProtocol;
        connection_made("transport") => connection_made, "Begin the handshake over this transport.";
        connection_lost("exc") => connection_lost, "The lower transport is gone.";
        get_buffer("sizehint") => get_buffer, "Return where to write ciphertext.";
        buffer_updated("nbytes") => buffer_updated, "Take ciphertext out of the buffer.";
        eof_received() => eof_received, "The lower transport has ended its stream.";
        pause_writing() => pause_writing, "The lower transport is full.";
        resume_writing() => resume_writing, "The lower transport takes bytes again.";
        _check_handshake_timeout() => check_handshake_timeout, "End a handshake that takes too long.";
        _check_shutdown_timeout() => check_shutdown_timeout, "End a shutdown that takes too long.";
        _feed("data") => feed, "Take ciphertext that was received before the handshake began.";
        _do_read() => do_read, "Deliver what can be decrypted.";
        _resume() => resume, "Go on after a pause of the user's.";
        get _loop => loop_, "The loop.";
        get _transport => transport, "The lower transport; None before connection_made() and after connection_lost().";
        get _app_transport => app_transport, "The user's transport; None once the connection is lost.";
        get _app_protocol => app_protocol, "The user's protocol; None once the connection is lost.";
        get _sslobj => ssl_object, "The ssl.SSLObject.";
        get _sslcontext => ssl_context, "The ssl.SSLContext it was made with.";
        get _libssl => libssl, "Whether records go straight to libssl.";
    );
}

fn connection_made(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("connection_made", 1)?;
    match args.get(0) {
        Some(transport) => handshake::start(this, &transport),
        None => Ok(()),
    }
}

fn connection_lost(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("connection_lost", 1)?;
    match args.get(0) {
        Some(error) => shutdown::connection_lost(this, &Obj::from_borrowed(error)),
        None => Ok(()),
    }
}

/// A transport that is not ours gets memory of this connection's own, made when it first asks.
fn get_buffer<'py>(this: Tls<'_, 'py>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    args.expect_positional("get_buffer", 1)?;
    let py = this.py();
    let hint: isize = args.get(0).map_or(Ok(-1), Borrowed::extract)?;
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

fn buffer_updated(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("buffer_updated", 1)?;
    let py = this.py();
    let count: usize = args.get(0).map_or(Ok(0), Borrowed::extract)?;
    let Some(buffer) = this.incoming.buffer.get(py) else {
        return Err(PyTypeError::raise(
            "buffer_updated() was called before get_buffer()",
        ));
    };
    let held = ffi::with_bytes(buffer.bind(py).as_borrowed(), |bytes| {
        incoming::take(this, &bytes[..count.min(bytes.len())])
    })??;
    drop(buffer);
    incoming::taken(this, held)
}

fn feed(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_feed", 1)?;
    let Some(data) = args.get(0) else {
        return Ok(());
    };
    match ffi::with_bytes(data, |bytes| incoming::take(this, bytes))?? {
        Some(held) => this.engine.feed(this.py(), &held),
        None => Ok(()),
    }
}

fn eof_received(this: Tls<'_, '_>) -> PyResult<Option<bool>> {
    Ok(shutdown::eof_received(this)?.then_some(true))
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

fn check_handshake_timeout(this: Tls<'_, '_>) -> PyResult<()> {
    handshake::check_timeout(this)
}

fn check_shutdown_timeout(this: Tls<'_, '_>) -> PyResult<()> {
    shutdown::check_timeout(this)
}

fn do_read(this: Tls<'_, '_>) -> PyResult<()> {
    let done = incoming::read(this);
    incoming::or_again(this, done)
}

fn resume(this: Tls<'_, '_>) -> PyResult<()> {
    incoming::resumed(this)
}

fn loop_<'py>(this: Tls<'_, 'py>) -> Bound<'py, PyAny> {
    this.loop_.get_or_none(this.py())
}

fn transport<'py>(this: Tls<'_, 'py>) -> Bound<'py, PyAny> {
    this.lower.get_or_none(this.py())
}

fn app_transport<'py>(this: Tls<'_, 'py>) -> Bound<'py, PyAny> {
    this.app_transport.get_or_none(this.py())
}

fn app_protocol<'py>(this: Tls<'_, 'py>) -> Bound<'py, PyAny> {
    this.app.get_or_none(this.py())
}

fn ssl_object<'py>(this: Tls<'_, 'py>) -> Bound<'py, PyAny> {
    this.engine.object(this.py())
}

fn ssl_context<'py>(this: Tls<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    this.extra
        .get_or_none(py)
        .get_item(intern!(py, "sslcontext"))
}

fn libssl(this: Tls<'_, '_>) -> bool {
    this.engine.is_direct()
}
