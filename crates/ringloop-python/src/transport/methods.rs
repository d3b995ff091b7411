//! The transport's Python methods: `asyncio.Transport`, and what the standard library reads beside it.
//!
//! Called by: user code. Never does: more than check arguments and hand over to a part.

// Every member has one signature, also where it cannot fail.
#![allow(clippy::unnecessary_wraps)]

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use ringloop::buf::SendBuf;

use super::{Stream, Stream_, create, flow, lifecycle, read, sendfile, thread, write};
use crate::ffi::{
    self, Args, Definition, Fallible, IntoObject as _, Obj, Raise as _, intern, method, property,
    repr_slot,
};
use crate::limits;

/// List the members.
pub(super) fn define(type_: &mut Definition<Stream>) {
    define_writing(type_);
    define_reading(type_);
    define_rest(type_);
    define_properties(type_);
    type_.repr(repr_slot!(Stream, repr));
}

fn define_writing(type_: &mut Definition<Stream>) {
    type_.method(method!(
        Stream,
        c"write",
        write_,
        c"write(data)\n--\n\nSend data; returns at once."
    ));
    type_.method(method!(
        Stream,
        c"writelines",
        writelines,
        c"writelines(list_of_data)\n--\n\nSend several pieces of data."
    ));
    type_.method(method!(
        Stream,
        c"write_eof",
        write_eof,
        c"write_eof()\n--\n\nClose the writing side once everything is sent."
    ));
    type_.method(method!(
        Stream,
        c"can_write_eof",
        can_write_eof,
        c"can_write_eof()\n--\n\nSay that write_eof() works."
    ));
    type_.method(method!(
        Stream,
        c"get_write_buffer_size",
        get_write_buffer_size,
        c"get_write_buffer_size()\n--\n\nReturn how many bytes wait to be sent."
    ));
    type_.method(method!(
        Stream,
        c"get_write_buffer_limits",
        get_write_buffer_limits,
        c"get_write_buffer_limits()\n--\n\nReturn the low and high water marks, in bytes."
    ));
    type_.method(method!(
        Stream,
        c"set_write_buffer_limits",
        set_write_buffer_limits,
        c"set_write_buffer_limits(high=None, low=None)\n--\n\nSet the water marks, in bytes."
    ));
}

fn define_reading(type_: &mut Definition<Stream>) {
    type_.method(method!(
        Stream,
        c"pause_reading",
        pause_reading,
        c"pause_reading()\n--\n\nDeliver nothing until resume_reading()."
    ));
    type_.method(method!(
        Stream,
        c"resume_reading",
        resume_reading,
        c"resume_reading()\n--\n\nDeliver again."
    ));
    type_.method(method!(
        Stream,
        c"is_reading",
        is_reading,
        c"is_reading()\n--\n\nSay whether bytes are delivered."
    ));
    type_.method(method!(
        Stream,
        c"_start_reading",
        start_reading,
        c"_start_reading()\n--\n\nBegin to read, after connection_made."
    ));
    type_.method(method!(
        Stream,
        c"_deliver_held",
        deliver_held,
        c"_deliver_held()\n--\n\nDeliver what came during a pause."
    ));
}

fn define_rest(type_: &mut Definition<Stream>) {
    type_.method(method!(
        Stream,
        c"close",
        close,
        c"close()\n--\n\nClose once everything is sent."
    ));
    type_.method(method!(
        Stream,
        c"abort",
        abort,
        c"abort()\n--\n\nClose now; unsent bytes are lost."
    ));
    type_.method(method!(
        Stream,
        c"is_closing",
        is_closing,
        c"is_closing()\n--\n\nSay whether it is closing or closed."
    ));
    type_.method(method!(
        Stream,
        c"set_protocol",
        set_protocol,
        c"set_protocol(protocol)\n--\n\nHand the connection to another protocol."
    ));
    type_.method(method!(
        Stream,
        c"get_protocol",
        get_protocol,
        c"get_protocol()\n--\n\nReturn the current protocol."
    ));
    type_.method(method!(
        Stream,
        c"_force_close",
        force_close,
        c"_force_close(exc)\n--\n\nClose now, with this exception for connection_lost()."
    ));
    type_.method(method!(
        Stream,
        c"_fatal_error",
        fatal_error,
        c"_fatal_error(exc, message='Fatal error on transport')\n--\n\nReport an error and close."
    ));
    type_.method(method!(
        Stream,
        c"_call_connection_lost",
        call_connection_lost,
        c"_call_connection_lost(exc)\n--\n\nTell the protocol and let go of the socket."
    ));
    type_.method(method!(
        Stream,
        c"_make_empty_waiter",
        make_empty_waiter,
        c"_make_empty_waiter()\n--\n\nRefuse writes; the future is done once all is sent."
    ));
    type_.method(method!(
        Stream,
        c"_reset_empty_waiter",
        reset_empty_waiter,
        c"_reset_empty_waiter()\n--\n\nAccept writes again."
    ));
    type_.method(method!(
        Stream,
        c"_send_gathered",
        send_gathered,
        c"_send_gathered()\n--\n\nSend what waits for the end of the turn."
    ));
    type_.method(method!(
        Stream,
        c"_write_at_once",
        write_at_once,
        c"_write_at_once()\n--\n\nSend what waits, and have nothing wait any more."
    ));
}

fn define_properties(type_: &mut Definition<Stream>) {
    type_.property(property!(Stream, c"_loop", loop_, c"The loop."));
    type_.property(property!(
        Stream,
        c"_sock",
        socket,
        c"The socket; None once closed."
    ));
    type_.property(property!(
        Stream,
        c"_sock_fd",
        socket_fd,
        c"The socket's descriptor."
    ));
    type_.property(property!(
        Stream,
        c"_protocol",
        protocol,
        c"The protocol; None once lost."
    ));
    type_.property(property!(
        Stream,
        c"_server",
        server,
        c"The server that accepted it, or None."
    ));
    type_.property(property!(
        Stream,
        c"_closing",
        closing,
        c"Whether it is closing or closed."
    ));
    type_.property(property!(
        Stream,
        c"_paused",
        paused,
        c"Whether reading is paused."
    ));
    type_.property(property!(
        Stream,
        c"_eof",
        eof,
        c"Whether write_eof() was called."
    ));
    type_.property(property!(
        Stream,
        c"_conn_lost",
        conn_lost,
        c"Writes since the connection was lost."
    ));
    type_.property(property!(
        Stream,
        c"_protocol_paused",
        protocol_paused,
        c"Whether the protocol was told to stop writing."
    ));
    type_.property(property!(
        Stream,
        c"_start_tls_compatible",
        start_tls_compatible,
        c"loop.start_tls() accepts it."
    ));
    type_.property(property!(
        Stream,
        c"_sendfile_compatible",
        sendfile_compatible,
        c"loop.sendfile() tries its socket first."
    ));
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

fn write_eof(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("write_eof", 0)?;
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "write_eof"));
    }
    write::write_eof(this)
}

fn can_write_eof(_this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("can_write_eof", 0)?;
    Ok(true)
}

fn get_write_buffer_size(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<u64> {
    args.expect_positional("get_write_buffer_size", 0)?;
    if this.is_elsewhere() {
        return Ok(this.write.size() as u64);
    }
    Ok(write::unsent(this)? as u64)
}

fn get_write_buffer_limits<'py>(
    this: Stream_<'_, 'py>,
    args: Args<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    args.expect_positional("get_write_buffer_limits", 0)?;
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

fn pause_reading(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("pause_reading", 0)?;
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "pause_reading"));
    }
    if !this.lifecycle.is_closing() && read::pause(this)? {
        log_debug(this, "%r pauses reading")
    } else {
        Ok(())
    }
}

fn resume_reading(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("resume_reading", 0)?;
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

fn is_reading(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("is_reading", 0)?;
    Ok(!this.lifecycle.is_closing() && !this.read.is_paused())
}

fn start_reading(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_start_reading", 0)?;
    read::start(this)
}

fn deliver_held(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_deliver_held", 0)?;
    read::deliver_held(this)
}

fn close(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("close", 0)?;
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "close"));
    }
    lifecycle::close(this)
}

fn abort(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("abort", 0)?;
    if this.is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "abort"));
    }
    lifecycle::force_close(this, None)
}

fn is_closing(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("is_closing", 0)?;
    closing(this)
}

fn set_protocol(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let protocol = one(args, "set_protocol", intern!(this.py(), "protocol"))?;
    // What becomes of it is the old protocol's.
    if !this.is_elsewhere() {
        write::send_gathered(this)?;
    }
    create::set_protocol(this, &protocol)
}

fn get_protocol<'py>(this: Stream_<'_, 'py>, args: Args<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    args.expect_positional("get_protocol", 0)?;
    protocol(this)
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

fn make_empty_waiter(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    args.expect_positional("_make_empty_waiter", 0)?;
    sendfile::make_empty_waiter(this)
}

fn reset_empty_waiter(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_reset_empty_waiter", 0)?;
    sendfile::reset_empty_waiter(this);
    Ok(())
}

fn send_gathered(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_send_gathered", 0)?;
    if this.is_elsewhere() {
        return Ok(());
    }
    write::send_gathered(this)
}

fn write_at_once(this: Stream_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_write_at_once", 0)?;
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

fn loop_<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.loop_.get_or_none(this.py()))
}

fn socket<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    reached(this)?;
    Ok(this.socket.get_or_none(this.py()))
}

fn socket_fd<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    reached(this)?;
    this.socket.original_fd().into_object(this.py())
}

fn protocol<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.protocol.get_or_none(this.py()))
}

fn server<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.server.get_or_none(this.py()))
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

fn paused(this: Stream_<'_, '_>) -> PyResult<bool> {
    Ok(this.read.is_paused())
}

fn eof(this: Stream_<'_, '_>) -> PyResult<bool> {
    Ok(this.write.eof.get())
}

fn conn_lost(this: Stream_<'_, '_>) -> PyResult<u64> {
    Ok(u64::from(this.lifecycle.lost_writes.get()))
}

fn protocol_paused(this: Stream_<'_, '_>) -> PyResult<bool> {
    Ok(this.flow.is_paused())
}

fn start_tls_compatible(_this: Stream_<'_, '_>) -> PyResult<bool> {
    Ok(true)
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
