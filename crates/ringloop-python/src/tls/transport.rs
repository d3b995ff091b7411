//! The Python surface towards the application: `asyncio.Transport` over TLS.
//!
//! Called by: user code. Arguments are checked here; the parts do the work.
//! Source: `asyncio.sslproto._SSLProtocolTransport`.

use pyo3::exceptions::{PyAttributeError, PyNotImplementedError, PyResourceWarning, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringloop::buf::SendBuf;

use super::state::{Tls, TlsProtocol, TlsTransport, Transport};
use super::{create, incoming, lower, outgoing, shutdown};
use crate::ffi::{self, Argument, Definition, Obj, Payload, Raise as _, intern, members};
use crate::limits;
use crate::stream::sendfile;
use crate::transport::marks::given;

use crate::transport::thread::{self, Change};

pub(super) fn define(type_: &mut Definition<TlsTransport>) {
    members!(type_, TlsTransport;
        write(data) => write, "Send data; returns at once.";
        writelines(list_of_data) => writelines, "Send several pieces of data.";
        write_eof() => write_eof, "Not possible over TLS: raises NotImplementedError.";
        can_write_eof() => |_this| false, "Say that write_eof() does not work.";
        get_write_buffer_size() => |this| with(this, outgoing::size), "Return how many bytes the lower transport was not given yet.";
        get_write_buffer_limits() => |this| with(this, |tls| tls.outgoing.flow.marks.to_python(tls.py())), "Return the low and high water marks, in bytes.";
        set_write_buffer_limits(high=None, low=None) => set_write_buffer_limits, "Set the water marks, in bytes.";
        _test__append_write_backlog(data) => append_write_backlog, "Queue data without sending it.";
        pause_reading() => |this| set_reading(this, true), "Deliver nothing until resume_reading().";
        resume_reading() => |this| set_reading(this, false), "Deliver again.";
        is_reading() => |this| with(this, |tls| Ok(!this.owner.will_pause(tls.incoming.app_paused.get()))), "Say whether bytes are delivered.";
        get_read_buffer_size() => |this| with(this, |tls| tls.engine.incoming_len(tls.py())), "Return how many bytes of ciphertext wait to be decrypted.";
        get_read_buffer_limits() => |this| with(this, |tls| tls.incoming.flow.marks.to_python(tls.py())), "Return the low and high water marks, in bytes.";
        set_read_buffer_limits(high=None, low=None) => set_read_buffer_limits, "Set the water marks, in bytes.";
        get_extra_info(name, default=None) => get_extra_info, "Return what is known of the connection.";
        set_protocol(protocol) => set_protocol, "Hand the connection to another protocol.";
        get_protocol() => |this| with(this, |tls| Ok(tls.app.get_or_none(tls.py()))), "Return the current protocol.";
        is_closing() => is_closing, "Say whether it is closing or closed.";
        close() => close, "Close once everything is sent and the peer has said goodbye.";
        abort() => abort, "Close now; unsent bytes are lost.";
        _force_close(exc) => force_close, "Close now, with this exception for connection_lost().";
        get _loop => |this| this.owner.loop_(this.py()), "The loop.";
        get _ssl_protocol => |this| this.protocol.get_or_none(this.py()), "The protocol that speaks TLS.";
        get _closed => is_closed, "Whether close() or abort() was called, or the connection is lost.";
        get _protocol_paused => |this| with(this, |tls| Ok(tls.outgoing.flow.is_paused())), "Whether the protocol was told to stop writing.";
        get _start_tls_compatible => |_this| true, "loop.start_tls() accepts it.";
        get _sendfile_compatible => |this| sendfile::mode(intern!(this.py(), "FALLBACK")), "loop.sendfile() reads the file and writes it here.";
    );
}

/// Runs `body` with the state machine.
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

/// `write` of one of our transports over TLS; `None` for any other.
pub(crate) fn write_to(
    transport: &Bound<'_, PyAny>,
    data: Argument<'_, '_>,
) -> Option<PyResult<()>> {
    let this = TlsTransport::native().get(transport)?;
    Some(ffi::locked(transport, || write(this, data)))
}

/// `is_closing` of one of our transports over TLS; `None` for any other.
pub(crate) fn is_transport_closing(transport: &Bound<'_, PyAny>) -> Option<PyResult<bool>> {
    let this = TlsTransport::native().get(transport)?;
    Some(ffi::locked(transport, || is_closing(this)))
}

fn write(this: Transport<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    if !ffi::is_bytes_like(data) {
        return Err(PyTypeError::raise(format!(
            "data: expecting a bytes-like instance, got {}",
            data.get_type().name()?
        )));
    }
    let buf = ffi::take_over(data)?;
    if buf.is_empty() {
        return Ok(());
    }
    if this.owner.is_elsewhere() {
        return thread::hand_over_bytes(this, &[buf]);
    }
    with(this, |tls| outgoing::write(tls, std::iter::once(buf)))
}

fn writelines(this: Transport<'_, '_>, list: Argument<'_, '_>) -> PyResult<()> {
    if this.owner.is_elsewhere() {
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
            // asyncio detects that when it encrypts, which ends the connection.
            Some(error) => lower::fatal_error(tls, error, "Fatal error on SSL protocol").map(drop),
            None => Ok(()),
        }
    })
}

/// Takes over the buffers before the first invalid one, and returns its error.
fn take_over_all(list: Argument<'_, '_>) -> PyResult<(Vec<SendBuf>, Option<PyErr>)> {
    let mut bufs = Vec::new();
    for data in list.try_iter()? {
        let data = data?;
        data.len()?;
        match ffi::take_over(data.as_borrowed()) {
            Ok(buf) => {
                bufs.try_reserve(1).map_err(ffi::no_memory)?;
                bufs.push(buf);
            }
            Err(error) => return Ok((bufs, Some(error))),
        }
    }
    Ok((bufs, None))
}

fn write_eof(_this: Transport<'_, '_>) -> PyResult<()> {
    Err(PyNotImplementedError::raise_bare())
}

fn set_write_buffer_limits(
    this: Transport<'_, '_>,
    high: Option<Argument<'_, '_>>,
    low: Option<Argument<'_, '_>>,
) -> PyResult<()> {
    let given = given("set_write_buffer_limits", high, low)?;
    with(this, |tls| {
        tls.outgoing.flow.marks.set(this.py(), given, limits::TLS_WRITE_HIGH_WATER)?;
        outgoing::control_app(tls)
    })
}

/// For tests of the standard library: as `write`, but without encryption yet.
fn append_write_backlog(this: Transport<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    let buf = ffi::take_over(data)?;
    with(this, |tls| tls.outgoing.backlog.push(std::iter::once(buf)))
}

fn set_reading(this: Transport<'_, '_>, pauses: bool) -> PyResult<()> {
    let py = this.py();
    let name = if pauses { intern!(py, "pause_reading") } else { intern!(py, "resume_reading") };
    thread::in_loop(this, name, Change::Reading(pauses), |this| {
        this.owner.reading_called();
        with(this, |tls| {
            if pauses {
                tls.incoming.app_paused.set(true);
                return Ok(());
            }
            shutdown::resume(tls)
        })
    })
}

fn set_read_buffer_limits(
    this: Transport<'_, '_>,
    high: Option<Argument<'_, '_>>,
    low: Option<Argument<'_, '_>>,
) -> PyResult<()> {
    let given = given("set_read_buffer_limits", high, low)?;
    with(this, |tls| {
        tls.incoming.flow.marks.set(this.py(), given, limits::TLS_READ_HIGH_WATER)?;
        incoming::control_lower(tls)
    })
}

fn get_extra_info<'py>(
    this: Transport<'_, 'py>,
    name: Argument<'_, 'py>,
    default: Option<Argument<'_, 'py>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    let default = default.map_or_else(|| py.None().into_bound(py), Borrowed::to_owned);
    with(this, |tls| {
        if let Ok(extra) = tls.extra.get_or_none(py).cast::<PyDict>()
            && let Some(value) = extra.get_item(name)?
        {
            return Ok(value);
        }
        match tls.lower.get(py) {
            Some(lower) => {
                lower.bind(py).call_method1(intern!(py, "get_extra_info"), (name, default))
            }
            None => Ok(default),
        }
    })
}

fn set_protocol(this: Transport<'_, '_>, protocol: Argument<'_, '_>) -> PyResult<()> {
    with(this, |tls| create::set_app_protocol(tls, &protocol))
}

/// Also if only the lower transport has closed, as a recent write may have found: a callback that
/// writes in a loop must see it. CPython asks the lower transport from 3.14 on.
fn is_closing(this: Transport<'_, '_>) -> PyResult<bool> {
    let py = this.py();
    if is_closed(this) {
        return Ok(true);
    }
    with(this, |tls| match tls.lower.get(py) {
        Some(lower) => {
            ffi::call_method(py, intern!(py, "is_closing"), &[&lower])?.bind(py).is_truthy()
        }
        None => Ok(false),
    })
}

/// Also after another thread called `close()`.
fn is_closed(this: Transport<'_, '_>) -> bool {
    this.closed.get() || this.owner.will_close()
}

fn close(this: Transport<'_, '_>) -> PyResult<()> {
    thread::in_loop(this, intern!(this.py(), "close"), Change::Closing, |this| {
        if this.closed.replace(true) {
            this.protocol.clear();
            return Ok(());
        }
        if this.owner.core(this.py())?.get().engine.is_of_another_process() {
            // A `close_notify` would end the parent's connection.
            return with(this, |tls| lower::abort(tls, None));
        }
        with(this, shutdown::start)
    })
}

fn abort(this: Transport<'_, '_>) -> PyResult<()> {
    let name = intern!(this.py(), "abort");
    thread::in_loop(this, name, Change::Closing, |this| abort_with(this, None))
}

fn force_close(this: Transport<'_, '_>, error: Argument<'_, '_>) -> PyResult<()> {
    let error = (!error.is_none()).then(|| Obj::from_borrowed(error));
    abort_with(this, error.as_ref())
}

fn abort_with(this: Transport<'_, '_>, error: Option<&Obj>) -> PyResult<()> {
    this.closed.set(true);
    if !this.protocol.is_some() {
        return Ok(());
    }
    with(this, |tls| lower::abort(tls, error))
}

/// `__del__`: the transport is unreferenced and was never closed.
pub(super) fn finalize(this: Transport<'_, '_>) {
    if this.closed.replace(true) {
        return;
    }
    let py = this.py();
    let warned = py.import(intern!(py, "warnings")).and_then(|warnings| {
        // asyncio's message, which names its own class.
        let words = "unclosed transport <asyncio._SSLProtocolTransport object>";
        let text = ffi::new_str(py, words)?;
        warnings.call_method1(intern!(py, "warn"), (text, py.get_type::<PyResourceWarning>()))
    });
    if let Err(error) = warned {
        error.write_unraisable(py, Some(&this.object()));
    }
}
