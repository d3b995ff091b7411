//! The Python surface towards the user: `asyncio.Transport` over TLS.
//!
//! Called by: user code. Never does: more than check arguments and hand over to a part.
//! Source: `asyncio.sslproto._SSLProtocolTransport`.

// Every member has one signature, also where it cannot fail.
#![allow(clippy::unnecessary_wraps)]

use pyo3::exceptions::{PyAttributeError, PyNotImplementedError, PyResourceWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView};
use ringloop::buf::SendBuf;

use super::{Tls, TlsProtocol, TlsTransport, Transport, create, incoming, outgoing, shutdown};
use crate::ffi::{self, Args, Definition, Obj, Payload, Raise as _, intern, method, property};
use crate::limits;
use crate::transport::write::take_over;
use crate::transport::{high_and_low, one, thread};

/// List the members.
pub(super) fn define(type_: &mut Definition<TlsTransport>) {
    define_writing(type_);
    define_reading(type_);
    define_rest(type_);
    define_properties(type_);
}

fn define_writing(type_: &mut Definition<TlsTransport>) {
    type_.method(method!(
        TlsTransport,
        c"write",
        write,
        c"write(data)\n--\n\nSend data; returns at once."
    ));
    type_.method(method!(
        TlsTransport,
        c"writelines",
        writelines,
        c"writelines(list_of_data)\n--\n\nSend several pieces of data."
    ));
    type_.method(method!(
        TlsTransport,
        c"write_eof",
        write_eof,
        c"write_eof()\n--\n\nNot possible over TLS: raises NotImplementedError."
    ));
    type_.method(method!(
        TlsTransport,
        c"can_write_eof",
        can_write_eof,
        c"can_write_eof()\n--\n\nSay that write_eof() does not work."
    ));
    type_.method(method!(
        TlsTransport,
        c"get_write_buffer_size",
        get_write_buffer_size,
        c"get_write_buffer_size()\n--\n\nReturn how many bytes the lower transport was not given yet."
    ));
    type_.method(method!(
        TlsTransport,
        c"get_write_buffer_limits",
        get_write_buffer_limits,
        c"get_write_buffer_limits()\n--\n\nReturn the low and high water marks, in bytes."
    ));
    type_.method(method!(
        TlsTransport,
        c"set_write_buffer_limits",
        set_write_buffer_limits,
        c"set_write_buffer_limits(high=None, low=None)\n--\n\nSet the water marks, in bytes."
    ));
    type_.method(method!(
        TlsTransport,
        c"_test__append_write_backlog",
        append_write_backlog,
        c"_test__append_write_backlog(data)\n--\n\nQueue data without sending it."
    ));
}

fn define_reading(type_: &mut Definition<TlsTransport>) {
    type_.method(method!(
        TlsTransport,
        c"pause_reading",
        pause_reading,
        c"pause_reading()\n--\n\nDeliver nothing until resume_reading()."
    ));
    type_.method(method!(
        TlsTransport,
        c"resume_reading",
        resume_reading,
        c"resume_reading()\n--\n\nDeliver again."
    ));
    type_.method(method!(
        TlsTransport,
        c"is_reading",
        is_reading,
        c"is_reading()\n--\n\nSay whether bytes are delivered."
    ));
    type_.method(method!(
        TlsTransport,
        c"get_read_buffer_size",
        get_read_buffer_size,
        c"get_read_buffer_size()\n--\n\nReturn how many bytes of ciphertext wait to be decrypted."
    ));
    type_.method(method!(
        TlsTransport,
        c"get_read_buffer_limits",
        get_read_buffer_limits,
        c"get_read_buffer_limits()\n--\n\nReturn the low and high water marks, in bytes."
    ));
    type_.method(method!(
        TlsTransport,
        c"set_read_buffer_limits",
        set_read_buffer_limits,
        c"set_read_buffer_limits(high=None, low=None)\n--\n\nSet the water marks, in bytes."
    ));
}

fn define_rest(type_: &mut Definition<TlsTransport>) {
    type_.method(method!(
        TlsTransport,
        c"get_extra_info",
        get_extra_info,
        c"get_extra_info(name, default=None)\n--\n\nReturn what is known of the connection."
    ));
    type_.method(method!(
        TlsTransport,
        c"set_protocol",
        set_protocol,
        c"set_protocol(protocol)\n--\n\nHand the connection to another protocol."
    ));
    type_.method(method!(
        TlsTransport,
        c"get_protocol",
        get_protocol,
        c"get_protocol()\n--\n\nReturn the current protocol."
    ));
    type_.method(method!(
        TlsTransport,
        c"is_closing",
        is_closing,
        c"is_closing()\n--\n\nSay whether it is closing or closed."
    ));
    type_.method(method!(
        TlsTransport,
        c"close",
        close,
        c"close()\n--\n\nClose once everything is sent and the peer has said goodbye."
    ));
    type_.method(method!(
        TlsTransport,
        c"abort",
        abort,
        c"abort()\n--\n\nClose now; unsent bytes are lost."
    ));
    type_.method(method!(
        TlsTransport,
        c"_force_close",
        force_close,
        c"_force_close(exc)\n--\n\nClose now, with this exception for connection_lost()."
    ));
}

fn define_properties(type_: &mut Definition<TlsTransport>) {
    type_.property(property!(TlsTransport, c"_loop", loop_, c"The loop."));
    type_.property(property!(
        TlsTransport,
        c"_ssl_protocol",
        ssl_protocol,
        c"The protocol that speaks TLS."
    ));
    type_.property(property!(
        TlsTransport,
        c"_closed",
        closed,
        c"Whether close() or abort() was called, or the connection is lost."
    ));
    type_.property(property!(
        TlsTransport,
        c"_protocol_paused",
        protocol_paused,
        c"Whether the protocol was told to stop writing."
    ));
    type_.property(property!(
        TlsTransport,
        c"_start_tls_compatible",
        start_tls_compatible,
        c"loop.start_tls() accepts it."
    ));
    type_.property(property!(
        TlsTransport,
        c"_sendfile_compatible",
        sendfile_compatible,
        c"loop.sendfile() reads the file and writes it here."
    ));
}

/// Run `body` with the state machine.
fn with<'py, R>(
    this: Transport<'_, 'py>,
    body: impl FnOnce(Tls<'_, 'py>) -> PyResult<R>,
) -> PyResult<R> {
    let protocol = this.protocol.get_or_none(this.py());
    match TlsProtocol::native().get(&protocol) {
        Some(tls) => ffi::locked(&protocol, || body(tls)),
        None => Err(PyAttributeError::raise(
            "this transport was closed twice and has forgotten its connection",
        )),
    }
}

fn write(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let data = one(args, "write", intern!(this.py(), "data"))?;
    let bytes_like = data.cast::<PyBytes>().is_ok()
        || data.cast::<PyByteArray>().is_ok()
        || data.cast::<PyMemoryView>().is_ok();
    if !bytes_like {
        return Err(PyTypeError::raise(format!(
            "data: expecting a bytes-like instance, got {}",
            data.get_type().name()?
        )));
    }
    let buf = take_over(data)?;
    if buf.is_empty() {
        return Ok(());
    }
    if this.is_elsewhere() {
        return thread::hand_over_bytes(this, &[buf]);
    }
    with(this, |tls| outgoing::write(tls, std::iter::once(buf)))
}

fn writelines(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let list = one(args, "writelines", intern!(this.py(), "list_of_data"))?;
    if this.is_elsewhere() {
        let (bufs, refused) = take_over_all(list)?;
        thread::hand_over_bytes(this, &bufs)?;
        return refused.map_or(Ok(()), Err);
    }
    with(this, |tls| {
        if tls.state.get().is_over() {
            return outgoing::dropped(tls);
        }
        let (bufs, refused) = take_over_all(list)?;
        outgoing::write(tls, bufs.into_iter())?;
        match refused {
            // asyncio finds out when it encrypts, which ends the connection.
            Some(error) => {
                shutdown::fatal_error(tls, error, "Fatal error on SSL protocol").map(drop)
            }
            None => Ok(()),
        }
    })
}

/// Take over what comes before the first that cannot be sent, and why that cannot.
fn take_over_all(list: Borrowed<'_, '_, PyAny>) -> PyResult<(Vec<SendBuf>, Option<PyErr>)> {
    let mut bufs = Vec::new();
    for data in list.try_iter()? {
        let data = data?;
        data.len()?;
        match take_over(data.as_borrowed()) {
            Ok(buf) => {
                bufs.try_reserve(1).map_err(ffi::no_memory)?;
                bufs.push(buf);
            }
            Err(error) => return Ok((bufs, Some(error))),
        }
    }
    Ok((bufs, None))
}

fn write_eof(_this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("write_eof", 0)?;
    Err(PyNotImplementedError::raise_bare())
}

fn can_write_eof(_this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("can_write_eof", 0)?;
    Ok(false)
}

fn get_write_buffer_size(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<u64> {
    args.expect_positional("get_write_buffer_size", 0)?;
    with(this, |tls| Ok(outgoing::size(tls)? as u64))
}

fn get_write_buffer_limits<'py>(
    this: Transport<'_, 'py>,
    args: Args<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    args.expect_positional("get_write_buffer_limits", 0)?;
    with(this, |tls| tls.outgoing.marks.to_python(this.py()))
}

fn set_write_buffer_limits(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let given = high_and_low(args, "set_write_buffer_limits")?;
    with(this, |tls| {
        tls.outgoing
            .marks
            .set(this.py(), given, limits::TLS_WRITE_HIGH_WATER)?;
        outgoing::control_app(tls)
    })
}

/// For tests of the standard library: as `write`, but nothing is encrypted yet.
fn append_write_backlog(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let data = one(
        args,
        "_test__append_write_backlog",
        intern!(this.py(), "data"),
    )?;
    let buf = take_over(data)?;
    with(this, |tls| {
        let before = tls.outgoing.backlog_bytes.get();
        tls.outgoing.backlog_bytes.set(before + buf.len());
        tls.outgoing.backlog.borrow_mut().push_back(buf);
        Ok(())
    })
}

fn pause_reading(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("pause_reading", 0)?;
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "pause_reading"));
    }
    with(this, |tls| {
        incoming::pause(tls);
        Ok(())
    })
}

fn resume_reading(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("resume_reading", 0)?;
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "resume_reading"));
    }
    with(this, incoming::resume)
}

fn is_reading(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("is_reading", 0)?;
    with(this, |tls| Ok(!tls.incoming.app_paused.get()))
}

fn get_read_buffer_size(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<u64> {
    args.expect_positional("get_read_buffer_size", 0)?;
    with(this, |tls| Ok(tls.engine.incoming_len(this.py())? as u64))
}

fn get_read_buffer_limits<'py>(
    this: Transport<'_, 'py>,
    args: Args<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    args.expect_positional("get_read_buffer_limits", 0)?;
    with(this, |tls| tls.incoming.marks.to_python(this.py()))
}

fn set_read_buffer_limits(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let given = high_and_low(args, "set_read_buffer_limits")?;
    with(this, |tls| {
        tls.incoming
            .marks
            .set(this.py(), given, limits::TLS_READ_HIGH_WATER)?;
        incoming::control_lower(tls)
    })
}

fn get_extra_info<'py>(
    this: Transport<'_, 'py>,
    args: Args<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    let (mut name, mut default) = (args.get(0), args.get(1));
    for (keyword, value) in args.keywords() {
        match keyword.extract::<std::borrow::Cow<'_, str>>()?.as_ref() {
            "name" => name = Some(value),
            "default" => default = Some(value),
            other => {
                return Err(PyTypeError::raise(format!(
                    "get_extra_info() got an unexpected keyword argument '{other}'"
                )));
            }
        }
    }
    let Some(name) = name else {
        return Err(PyTypeError::raise(
            "get_extra_info() misses the argument 'name'",
        ));
    };
    let default = default.map_or_else(|| py.None().into_bound(py), Borrowed::to_owned);
    with(this, |tls| {
        if let Ok(extra) = tls.extra.get_or_none(py).cast::<PyDict>()
            && let Some(value) = extra.get_item(name)?
        {
            return Ok(value);
        }
        match tls.lower.get(py) {
            Some(lower) => lower
                .bind(py)
                .call_method1(intern!(py, "get_extra_info"), (name, default)),
            None => Ok(default),
        }
    })
}

fn set_protocol(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let protocol = one(args, "set_protocol", intern!(this.py(), "protocol"))?;
    with(this, |tls| create::set_app_protocol(tls, &protocol))
}

fn get_protocol<'py>(this: Transport<'_, 'py>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    args.expect_positional("get_protocol", 0)?;
    with(this, |tls| Ok(tls.app.get_or_none(this.py())))
}

/// Also where only the transport below has ended, which a write of a moment ago may have found: a callback that
/// writes until then must see it. CPython asks the lower transport from 3.14 on.
fn is_closing(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("is_closing", 0)?;
    let py = this.py();
    if this.closed.get() {
        return Ok(true);
    }
    with(this, |tls| match tls.lower.get(py) {
        Some(lower) => ffi::call_method(py, intern!(py, "is_closing"), &[&lower])?
            .bind(py)
            .is_truthy(),
        None => Ok(false),
    })
}

fn close(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("close", 0)?;
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "close"));
    }
    if this.closed.replace(true) {
        drop(this.protocol.take());
        return Ok(());
    }
    with(this, shutdown::start)
}

fn abort(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("abort", 0)?;
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "abort"));
    }
    abort_with(this, None)
}

fn force_close(this: Transport<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_force_close", 1)?;
    let error = args.get(0).filter(|error| !error.is_none());
    abort_with(this, error.map(Obj::from_borrowed).as_ref())
}

fn abort_with(this: Transport<'_, '_>, error: Option<&Obj>) -> PyResult<()> {
    this.closed.set(true);
    if !this.protocol.is_some() {
        return Ok(());
    }
    with(this, |tls| shutdown::abort(tls, error))
}

fn loop_<'py>(this: Transport<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.loop_.get_or_none(this.py()))
}

fn ssl_protocol<'py>(this: Transport<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.protocol.get_or_none(this.py()))
}

fn closed(this: Transport<'_, '_>) -> PyResult<bool> {
    Ok(this.closed.get())
}

fn protocol_paused(this: Transport<'_, '_>) -> PyResult<bool> {
    with(this, |tls| Ok(tls.outgoing.app_paused.get()))
}

fn start_tls_compatible(_this: Transport<'_, '_>) -> PyResult<bool> {
    Ok(true)
}

fn sendfile_compatible<'py>(this: Transport<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    static FALLBACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = this.py();
    let mode = FALLBACK.get_or_try_init(py, || {
        let modes = py
            .import(intern!(py, "asyncio.constants"))?
            .getattr(intern!(py, "_SendfileMode"))?;
        Ok::<_, PyErr>(modes.getattr(intern!(py, "FALLBACK"))?.unbind())
    })?;
    Ok(mode.bind(py).clone())
}

/// `__del__`: nobody holds the transport, and it was never closed.
pub(super) fn finalize(this: Transport<'_, '_>) {
    if this.closed.replace(true) {
        return;
    }
    let py = this.py();
    let warned = py.import(intern!(py, "warnings")).and_then(|warnings| {
        // asyncio's words, which name its own class.
        let words = "unclosed transport <asyncio._SSLProtocolTransport object>";
        let text = ffi::new_str(py, words)?;
        warnings.call_method1(
            intern!(py, "warn"),
            (text, py.get_type::<PyResourceWarning>()),
        )
    });
    if let Err(error) = warned {
        error.write_unraisable(py, Some(&this.object()));
    }
}
