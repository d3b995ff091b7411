//! The transport's Python methods: `asyncio.Transport`, and what the standard library reads beside it.
//!
//! Called by: user code. Never does: more than check arguments and hand over to a part.

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use ringloop::buf::SendBuf;

use super::{Stream, Stream_, create, flow, lifecycle, read, sendfile, thread, write};
use crate::ffi::{
    self, Args, Definition, Fallible, IntoObject as _, Obj, Raise as _, intern, members, repr_slot,
};
use crate::limits;

/// List the members.
pub(super) fn define(type_: &mut Definition<Stream>) {
    members!(type_, Stream;
        write("data") => write_, "Send data; returns at once.";
        writelines("list_of_data") => writelines, "Send several pieces of data.";
        write_eof() => write_eof, "Close the writing side once everything is sent.";
        can_write_eof() => can_write_eof, "Say that write_eof() works.";
        get_write_buffer_size() => get_write_buffer_size, "Return how many bytes wait to be sent.";
        get_write_buffer_limits() => get_write_buffer_limits, "Return the low and high water marks, in bytes.";
        set_write_buffer_limits("high=None, low=None") => set_write_buffer_limits, "Set the water marks, in bytes.";
        pause_reading() => pause_reading, "Deliver nothing until resume_reading().";
        resume_reading() => resume_reading, "Deliver again.";
        is_reading() => is_reading, "Say whether bytes are delivered.";
        _start_reading() => start_reading, "Begin to read, after connection_made.";
        _deliver_held() => deliver_held, "Deliver what came during a pause.";
        close() => close, "Close once everything is sent.";
        abort() => abort, "Close now; unsent bytes are lost.";
        is_closing() => closing, "Say whether it is closing or closed.";
        set_protocol("protocol") => set_protocol, "Hand the connection to another protocol.";
        get_protocol() => protocol, "Return the current protocol.";
        _force_close("exc") => force_close, "Close now, with this exception for connection_lost().";
        _fatal_error("exc, message='Fatal error on transport'") => fatal_error, "Report an error and close.";
        _call_connection_lost("exc") => call_connection_lost, "Tell the protocol and let go of the socket.";
        _make_empty_waiter() => make_empty_waiter, "Refuse writes; the future is done once all is sent.";
        _reset_empty_waiter() => reset_empty_waiter, "Accept writes again.";
        _send_gathered() => send_gathered, "Send what waits for the end of the turn.";
        _write_at_once() => write_at_once, "Send what waits, and have nothing wait any more.";
        get _loop => loop_, "The loop.";
        get _sock => socket, "The socket; None once closed.";
        get _sock_fd => socket_fd, "The socket's descriptor.";
        get _protocol => protocol, "The protocol; None once lost.";
        get _server => server, "The server that accepted it, or None.";
        get _closing => closing, "Whether it is closing or closed.";
        get _paused => paused, "Whether reading is paused.";
        get _eof => eof, "Whether write_eof() was called.";
        get _conn_lost => conn_lost, "Writes since the connection was lost.";
        get _protocol_paused => protocol_paused, "Whether the protocol was told to stop writing.";
        get _start_tls_compatible => start_tls_compatible, "loop.start_tls() accepts it.";
        get _sendfile_compatible => sendfile_compatible, "loop.sendfile() tries its socket first.";
    );
    type_.repr(repr_slot!(Stream, repr));
}

/// The one argument of a method, by position or by name.
#[inline]
pub(crate) fn one<'a, 'py>(
    args: Args<'a, 'py>,
    function: &str,
    name: &Bound<'py, PyString>,
) -> PyResult<Borrowed<'a, 'py, PyAny>> {
    let named = args.only_keyword(function, name)?;
    match (args.get(0), named) {
        (Some(value), None) | (None, Some(value)) if args.len() < 2 => Ok(value),
        (None, None) => Err(PyTypeError::raise(format!(
            "{function}() missing 1 required positional argument: '{name}'"
        ))),
        _ => Err(PyTypeError::raise(format!(
            "{function}() takes exactly one argument, '{name}'"
        ))),
    }
}

fn write_(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let data = one(args, "write", intern!(this.py(), "data"))?;
    write_buf(this, write::take_over(data)?)
}

/// What `write` does with bytes that are taken over.
pub(super) fn write_buf(this: Stream_<'_, '_>, buf: SendBuf) -> PyResult<()> {
    if this.write.eof.get() {
        return Err(PyRuntimeError::raise(
            "Cannot call write() after write_eof()",
        ));
    }
    if sendfile::in_progress(this) {
        return Err(PyRuntimeError::raise(
            "unable to write; sendfile is in progress",
        ));
    }
    if this.is_elsewhere() {
        return thread::hand_over_bytes(this, &[buf]);
    }
    if buf.is_empty() || dropped(this)? {
        return Ok(());
    }
    write::enqueue(this, std::iter::once(buf))
}

fn writelines(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let list = one(args, "writelines", intern!(this.py(), "list_of_data"))?;
    let mut bufs = Vec::new();
    for data in list.try_iter()? {
        bufs.try_reserve(1).map_err(ffi::no_memory)?;
        bufs.push(write::take_over(data?.as_borrowed())?);
    }
    if this.write.eof.get() {
        return Err(PyRuntimeError::raise(
            "Cannot call writelines() after write_eof()",
        ));
    }
    if sendfile::in_progress(this) {
        return Err(PyRuntimeError::raise(
            "unable to writelines; sendfile is in progress",
        ));
    }
    if this.is_elsewhere() {
        return thread::hand_over_bytes(this, &bufs);
    }
    bufs.retain(|buf| !buf.is_empty());
    if bufs.is_empty() || dropped(this)? {
        return Ok(());
    }
    if this.keeps_messages && bufs.len() > 1 {
        // One call is one message, as asyncio's sendmsg(2) makes it.
        bufs = vec![write::joined(&bufs)?];
    }
    write::enqueue(this, bufs.into_iter())
}

/// After the end, writes go nowhere; asyncio logs the fifth and later ones.
fn dropped(this: Stream_<'_, '_>) -> PyResult<bool> {
    let lost = this.lifecycle.lost_writes.get();
    if lost == 0 {
        return Ok(false);
    }
    if lost >= limits::LOST_WRITES_BEFORE_WARNING {
        let py = this.py();
        let logger = py
            .import(intern!(py, "asyncio.log"))?
            .getattr(intern!(py, "logger"))?;
        let text = ffi::new_str(py, "socket.send() raised exception.")?;
        logger.call_method1(intern!(py, "warning"), (text,))?;
    }
    this.lifecycle.lost_writes.set(lost + 1);
    Ok(true)
}

fn write_eof(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "write_eof"));
    }
    write::write_eof(this)
}

fn can_write_eof(_this: Stream_<'_, '_>) -> bool {
    true
}

fn get_write_buffer_size(this: Stream_<'_, '_>) -> PyResult<u64> {
    if this.is_elsewhere() {
        return Ok(this.write.size() as u64);
    }
    Ok(write::unsent(this)? as u64)
}

fn get_write_buffer_limits<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    this.flow.limits(this.py())
}

fn set_write_buffer_limits(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    this.flow.set_limits(this.py(), args)?;
    // What was only gathered is no reason to pause: nothing that would end the pause is under way.
    let size = if this.is_elsewhere() {
        this.write.size()
    } else {
        write::unsent(this)?
    };
    flow::maybe_pause(this, size)
}

fn pause_reading(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "pause_reading"));
    }
    if !this.lifecycle.is_closing() && read::pause(this)? {
        log_debug(this, "%r pauses reading")
    } else {
        Ok(())
    }
}

fn resume_reading(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "resume_reading"));
    }
    if !this.lifecycle.is_closing() && read::resume(this)? {
        return log_debug(this, "%r resumes reading");
    }
    Ok(())
}

fn log_debug(this: Stream_<'_, '_>, text: &str) -> PyResult<()> {
    let py = this.py();
    if this.core(py)?.get().debug() {
        let logger = py
            .import(intern!(py, "asyncio.log"))?
            .getattr(intern!(py, "logger"))?;
        logger.call_method1(intern!(py, "debug"), (Fallible(text), this.object()))?;
    }
    Ok(())
}

fn is_reading(this: Stream_<'_, '_>) -> bool {
    !this.lifecycle.is_closing() && !this.read.is_paused()
}

fn start_reading(this: Stream_<'_, '_>) -> PyResult<()> {
    read::start(this)
}

fn deliver_held(this: Stream_<'_, '_>) -> PyResult<()> {
    read::deliver_held(this)
}

fn close(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "close"));
    }
    lifecycle::close(this)
}

fn abort(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "abort"));
    }
    lifecycle::force_close(this, None)
}

fn set_protocol(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let protocol = one(args, "set_protocol", intern!(this.py(), "protocol"))?;
    // What becomes of it is the old protocol's.
    if !this.is_elsewhere() {
        write::send_gathered(this)?;
    }
    create::set_protocol(this, &protocol)
}

fn force_close(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_force_close", 1)?;
    let error = args.get(0).filter(|error| !error.is_none());
    lifecycle::force_close(this, error.map(Obj::from_borrowed))
}

fn fatal_error(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let Some(error) = args.get(0) else {
        return Err(PyTypeError::raise(
            "_fatal_error() misses the argument 'exc'",
        ));
    };
    let mut message = args.get(1);
    for (name, value) in args.keywords() {
        if name.eq(intern!(this.py(), "message"))? {
            message = Some(value);
        }
    }
    let message = match message {
        Some(message) => message.extract::<String>()?,
        None => "Fatal error on transport".to_owned(),
    };
    lifecycle::fatal_error(this, PyErr::from_value(error.to_owned()), &message)
}

fn call_connection_lost(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_call_connection_lost", 1)?;
    match args.get(0) {
        Some(error) => lifecycle::connection_lost(this, &Obj::from_borrowed(error)),
        None => Ok(()),
    }
}

fn make_empty_waiter(this: Stream_<'_, '_>) -> PyResult<Obj> {
    sendfile::make_empty_waiter(this)
}

fn reset_empty_waiter(this: Stream_<'_, '_>) {
    sendfile::reset_empty_waiter(this);
}

fn send_gathered(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.is_elsewhere() {
        return Ok(());
    }
    write::send_gathered(this)
}

fn write_at_once(this: Stream_<'_, '_>) -> PyResult<()> {
    reached(this)
}

/// The program gets at the descriptor: what it writes from now on leaves at once.
fn reached(this: Stream_<'_, '_>) -> PyResult<()> {
    this.gathering.refuse();
    if this.is_elsewhere() {
        return Ok(());
    }
    write::send_gathered(this)
}

fn loop_<'py>(this: Stream_<'_, 'py>) -> Bound<'py, PyAny> {
    this.loop_.get_or_none(this.py())
}

fn socket<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    reached(this)?;
    Ok(this.socket.get_or_none(this.py()))
}

fn socket_fd<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    reached(this)?;
    this.socket.original_fd().into_object(this.py())
}

fn protocol<'py>(this: Stream_<'_, 'py>) -> Bound<'py, PyAny> {
    this.protocol.get_or_none(this.py())
}

fn server<'py>(this: Stream_<'_, 'py>) -> Bound<'py, PyAny> {
    this.server.get_or_none(this.py())
}

fn closing(this: Stream_<'_, '_>) -> PyResult<bool> {
    // Where nothing is received any more, only a send finds that the peer has gone; and one in flight may have.
    let may_be_closing =
        this.read.is_paused() || this.read.is_over() || write::has_queued_behind(this);
    if may_be_closing && !this.is_elsewhere() {
        write::send_gathered(this)?;
    }
    Ok(this.lifecycle.is_closing())
}

fn paused(this: Stream_<'_, '_>) -> bool {
    this.read.is_paused()
}

fn eof(this: Stream_<'_, '_>) -> bool {
    this.write.eof.get()
}

fn conn_lost(this: Stream_<'_, '_>) -> u64 {
    u64::from(this.lifecycle.lost_writes.get())
}

fn protocol_paused(this: Stream_<'_, '_>) -> bool {
    this.flow.is_paused()
}

fn start_tls_compatible(_this: Stream_<'_, '_>) -> bool {
    true
}

fn sendfile_compatible<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    static TRY_NATIVE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = this.py();
    let mode = TRY_NATIVE.get_or_try_init(py, || {
        let modes = py
            .import(intern!(py, "asyncio.constants"))?
            .getattr(intern!(py, "_SendfileMode"))?;
        Ok::<_, PyErr>(modes.getattr(intern!(py, "TRY_NATIVE"))?.unbind())
    })?;
    Ok(mode.bind(py).clone())
}

/// As asyncio writes it, with our class's name.
fn repr<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let closed = !this.socket.is_some();
    let state = match (closed, this.lifecycle.is_closing()) {
        (true, _) => " closed",
        (false, true) => " closing",
        (false, false) => "",
    };
    let traffic = if closed || this.core(this.py())?.get().is_closed() {
        String::new()
    } else {
        let word = |polling: bool| if polling { "polling" } else { "idle" };
        let (read, write) = (word(this.read.is_polling()), word(!this.write.is_empty()));
        let size = this.write.size();
        format!(" read={read} write=<{write}, bufsize={size}>")
    };
    let name = this.object().get_type().name()?;
    let fd = this.socket.original_fd();
    let text = format!("<{name}{state} fd={fd}{traffic}>");
    text.into_object(this.py())
}
