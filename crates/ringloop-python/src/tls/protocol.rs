//! The Python surface towards the lower transport: `asyncio.BufferedProtocol`.
//!
//! Called by: any transport; ours hand their bytes over natively instead (`lower`). Never does: more
//! than check arguments and hand over to a part.

// Every member has one signature, also where it cannot fail.
#![allow(clippy::unnecessary_wraps)]

use pyo3::exceptions::{PyAssertionError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyMemoryView};

use super::{Tls, TlsProtocol, handshake, incoming, outgoing, shutdown};
use crate::ffi::{self, Args, Definition, Obj, Raise as _, intern, method, property};
use crate::limits;

/// List the members.
pub(super) fn define(type_: &mut Definition<TlsProtocol>) {
    define_callbacks(type_);
    define_steps(type_);
    define_properties(type_);
}

fn define_callbacks(type_: &mut Definition<TlsProtocol>) {
    type_.method(method!(
        TlsProtocol,
        c"connection_made",
        connection_made,
        c"connection_made(transport)\n--\n\nBegin the handshake over this transport."
    ));
    type_.method(method!(
        TlsProtocol,
        c"connection_lost",
        connection_lost,
        c"connection_lost(exc)\n--\n\nThe lower transport is gone."
    ));
    type_.method(method!(
        TlsProtocol,
        c"get_buffer",
        get_buffer,
        c"get_buffer(sizehint)\n--\n\nReturn where to write ciphertext."
    ));
    type_.method(method!(
        TlsProtocol,
        c"buffer_updated",
        buffer_updated,
        c"buffer_updated(nbytes)\n--\n\nTake ciphertext out of the buffer."
    ));
    type_.method(method!(
        TlsProtocol,
        c"eof_received",
        eof_received,
        c"eof_received()\n--\n\nThe lower transport has ended its stream."
    ));
    type_.method(method!(
        TlsProtocol,
        c"pause_writing",
        pause_writing,
        c"pause_writing()\n--\n\nThe lower transport is full."
    ));
    type_.method(method!(
        TlsProtocol,
        c"resume_writing",
        resume_writing,
        c"resume_writing()\n--\n\nThe lower transport takes bytes again."
    ));
}

fn define_steps(type_: &mut Definition<TlsProtocol>) {
    type_.method(method!(
        TlsProtocol,
        c"_check_handshake_timeout",
        check_handshake_timeout,
        c"_check_handshake_timeout()\n--\n\nEnd a handshake that takes too long."
    ));
    type_.method(method!(
        TlsProtocol,
        c"_check_shutdown_timeout",
        check_shutdown_timeout,
        c"_check_shutdown_timeout()\n--\n\nEnd a shutdown that takes too long."
    ));
    type_.method(method!(
        TlsProtocol,
        c"_feed",
        feed,
        c"_feed(data)\n--\n\nTake ciphertext that was received before the handshake began."
    ));
    type_.method(method!(
        TlsProtocol,
        c"_do_read",
        do_read,
        c"_do_read()\n--\n\nDeliver what can be decrypted."
    ));
    type_.method(method!(
        TlsProtocol,
        c"_resume",
        resume,
        c"_resume()\n--\n\nGo on after a pause of the user's."
    ));
}

fn define_properties(type_: &mut Definition<TlsProtocol>) {
    type_.property(property!(TlsProtocol, c"_loop", loop_, c"The loop."));
    type_.property(property!(
        TlsProtocol,
        c"_transport",
        transport,
        c"The lower transport; None before connection_made() and after connection_lost()."
    ));
    type_.property(property!(
        TlsProtocol,
        c"_app_transport",
        app_transport,
        c"The user's transport; None once the connection is lost."
    ));
    type_.property(property!(
        TlsProtocol,
        c"_app_protocol",
        app_protocol,
        c"The user's protocol; None once the connection is lost."
    ));
    type_.property(property!(
        TlsProtocol,
        c"_sslobj",
        ssl_object,
        c"The ssl.SSLObject."
    ));
    type_.property(property!(
        TlsProtocol,
        c"_sslcontext",
        ssl_context,
        c"The ssl.SSLContext it was made with."
    ));
    type_.property(property!(
        TlsProtocol,
        c"_libssl",
        libssl,
        c"Whether records go straight to libssl."
    ));
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

fn eof_received(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<Option<bool>> {
    args.expect_positional("eof_received", 0)?;
    Ok(shutdown::eof_received(this)?.then_some(true))
}

fn pause_writing(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("pause_writing", 0)?;
    if this.outgoing.lower_paused.replace(true) {
        return Err(PyAssertionError::raise("writing is paused already"));
    }
    Ok(())
}

fn resume_writing(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("resume_writing", 0)?;
    if !this.outgoing.lower_paused.replace(false) {
        return Err(PyAssertionError::raise("writing is not paused"));
    }
    let done = outgoing::process(this);
    incoming::or_again(this, done)
}

fn check_handshake_timeout(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_check_handshake_timeout", 0)?;
    handshake::check_timeout(this)
}

fn check_shutdown_timeout(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_check_shutdown_timeout", 0)?;
    shutdown::check_timeout(this)
}

fn do_read(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_do_read", 0)?;
    let done = incoming::read(this);
    incoming::or_again(this, done)
}

fn resume(this: Tls<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_resume", 0)?;
    incoming::resumed(this)
}

fn loop_<'py>(this: Tls<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.loop_.get_or_none(this.py()))
}

fn transport<'py>(this: Tls<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.lower.get_or_none(this.py()))
}

fn app_transport<'py>(this: Tls<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.app_transport.get_or_none(this.py()))
}

fn app_protocol<'py>(this: Tls<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.app.get_or_none(this.py()))
}

fn ssl_object<'py>(this: Tls<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.engine.object(this.py()))
}

fn ssl_context<'py>(this: Tls<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    this.extra
        .get_or_none(py)
        .get_item(intern!(py, "sslcontext"))
}

fn libssl(this: Tls<'_, '_>) -> PyResult<bool> {
    Ok(this.engine.is_direct())
}
