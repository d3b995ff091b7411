//! The Python methods of both pipe transports: `asyncio.ReadTransport`, `asyncio.WriteTransport`, and
//! what asyncio's own have beside them.
//!
//! Called by: user code. Never does: more than check arguments and hand over to a part.

// Every member has one signature, also where it cannot fail.
#![allow(clippy::unnecessary_wraps)]

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

use super::poll::{self, Role};
use super::read::{self, ReadPipe, ReadPipe_};
use super::write::{self, WritePipe, WritePipe_};
use super::{Pipe, lifecycle};
use crate::ffi::{
    Args, Definition, IntoObject as _, Obj, Raise as _, This, intern, method, property, repr_slot,
};
use crate::transport::methods::one;
use crate::transport::write::take_over;
use crate::transport::{Writable, flow, thread};

/// List the members of the reading end.
pub(super) fn define_read(type_: &mut Definition<ReadPipe>) {
    define_common!(ReadPipe, type_);
    type_.method(method!(
        ReadPipe,
        c"pause_reading",
        pause_reading,
        c"pause_reading()\n--\n\nDeliver nothing until resume_reading()."
    ));
    type_.method(method!(
        ReadPipe,
        c"resume_reading",
        resume_reading,
        c"resume_reading()\n--\n\nDeliver again."
    ));
    type_.method(method!(
        ReadPipe,
        c"is_reading",
        is_reading,
        c"is_reading()\n--\n\nSay whether data is delivered."
    ));
    type_.method(method!(
        ReadPipe,
        c"close",
        close_read,
        c"close()\n--\n\nClose the pipe."
    ));
    type_.method(method!(
        ReadPipe,
        c"_start_polling",
        start_reading,
        c"_start_polling()\n--\n\nBegin to read, after connection_made."
    ));
    type_.property(property!(
        ReadPipe,
        c"_paused",
        paused,
        c"Whether reading is paused."
    ));
    type_.repr(repr_slot!(ReadPipe, repr_read));
}

/// List the members of the writing end.
pub(super) fn define_write(type_: &mut Definition<WritePipe>) {
    define_common!(WritePipe, type_);
    define_writing(type_);
    define_flow(type_);
    type_.repr(repr_slot!(WritePipe, repr_write));
}

fn define_writing(type_: &mut Definition<WritePipe>) {
    type_.method(method!(
        WritePipe,
        c"write",
        write_,
        c"write(data)\n--\n\nWrite data; returns at once."
    ));
    type_.method(method!(
        WritePipe,
        c"write_eof",
        write_eof,
        c"write_eof()\n--\n\nClose the pipe once everything is written."
    ));
    type_.method(method!(
        WritePipe,
        c"can_write_eof",
        can_write_eof,
        c"can_write_eof()\n--\n\nReturn True."
    ));
    type_.method(method!(
        WritePipe,
        c"close",
        write_eof,
        c"close()\n--\n\nClose the pipe once everything is written."
    ));
    type_.method(method!(
        WritePipe,
        c"abort",
        abort,
        c"abort()\n--\n\nClose the pipe now; what was not written is lost."
    ));
    type_.method(method!(
        WritePipe,
        c"_start_polling",
        start_writing,
        c"_start_polling()\n--\n\nWatch for the other end to be closed, after connection_made."
    ));
    type_.method(method!(
        WritePipe,
        c"_write_ready",
        write_ready,
        c"_write_ready()\n--\n\nWrite what is queued."
    ));
}

fn define_flow(type_: &mut Definition<WritePipe>) {
    type_.method(method!(
        WritePipe,
        c"get_write_buffer_size",
        get_write_buffer_size,
        c"get_write_buffer_size()\n--\n\nReturn how many bytes wait to be written."
    ));
    type_.method(method!(
        WritePipe,
        c"get_write_buffer_limits",
        get_write_buffer_limits,
        c"get_write_buffer_limits()\n--\n\nReturn the low and high water marks, in bytes."
    ));
    type_.method(method!(
        WritePipe,
        c"set_write_buffer_limits",
        set_write_buffer_limits,
        c"set_write_buffer_limits(high=None, low=None)\n--\n\nSet the water marks, in bytes."
    ));
    type_.property(property!(
        WritePipe,
        c"_conn_lost",
        conn_lost,
        c"Writes that failed or came after the end."
    ));
    type_.property(property!(
        WritePipe,
        c"_protocol_paused",
        protocol_paused,
        c"Whether the protocol was told to stop writing."
    ));
}

/// The members that both ends have.
macro_rules! define_common {
    ($target:ty, $type_:expr) => {{
        $type_.method(method!(
            $target,
            c"set_protocol",
            set_protocol,
            c"set_protocol(protocol)\n--\n\nHand the pipe to another protocol."
        ));
        $type_.method(method!(
            $target,
            c"get_protocol",
            get_protocol,
            c"get_protocol()\n--\n\nReturn the current protocol."
        ));
        $type_.method(method!(
            $target,
            c"is_closing",
            is_closing,
            c"is_closing()\n--\n\nSay whether it is closing or closed."
        ));
        $type_.method(method!(
            $target,
            c"_read_ready",
            read_ready,
            c"_read_ready()\n--\n\nRead, or see that the other end is closed."
        ));
        $type_.method(method!(
            $target,
            c"_call_connection_lost",
            call_connection_lost,
            c"_call_connection_lost(exc)\n--\n\nTell the protocol and close the pipe."
        ));
        $type_.property(property!($target, c"_loop", loop_, c"The loop."));
        $type_.property(property!(
            $target,
            c"_pipe",
            pipe,
            c"The file object; None once closed."
        ));
        $type_.property(property!(
            $target,
            c"_fileno",
            fileno,
            c"The pipe's descriptor."
        ));
        $type_.property(property!(
            $target,
            c"_protocol",
            protocol,
            c"The protocol; None once lost."
        ));
        $type_.property(property!(
            $target,
            c"_closing",
            closing,
            c"Whether it is closing or closed."
        ));
    }};
}
use define_common;

fn set_protocol<T: Pipe>(this: This<'_, '_, T>, args: Args<'_, '_>) -> PyResult<()> {
    let protocol = one(args, "set_protocol", intern!(this.py(), "protocol"))?;
    let old = this
        .end()
        .protocol
        .replace(Some(Obj::from_borrowed(protocol)));
    drop(old);
    Ok(())
}

fn get_protocol<'py, T: Pipe>(
    this: This<'_, 'py, T>,
    args: Args<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    args.expect_positional("get_protocol", 0)?;
    protocol(this)
}

fn is_closing<T: Pipe>(this: This<'_, '_, T>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("is_closing", 0)?;
    closing(this)
}

fn read_ready<T: Pipe>(this: This<'_, '_, T>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_read_ready", 0)?;
    poll::run(this, Role::Read)
}

fn call_connection_lost<T: Pipe>(this: This<'_, '_, T>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_call_connection_lost", 1)?;
    match args.get(0) {
        Some(error) => lifecycle::connection_lost(this, &Obj::from_borrowed(error)),
        None => Ok(()),
    }
}

fn loop_<'py, T: Pipe>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.end().loop_.get_or_none(this.py()))
}

fn pipe<'py, T: Pipe>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.end().pipe.get_or_none(this.py()))
}

fn fileno<'py, T: Pipe>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    this.end().fd.into_object(this.py())
}

fn protocol<'py, T: Pipe>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    Ok(this.end().protocol.get_or_none(this.py()))
}

fn closing<T: Pipe>(this: This<'_, '_, T>) -> PyResult<bool> {
    Ok(this.end().is_closing())
}

fn pause_reading(this: ReadPipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("pause_reading", 0)?;
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "pause_reading"));
    }
    read::pause(this)
}

fn resume_reading(this: ReadPipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("resume_reading", 0)?;
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "resume_reading"));
    }
    read::resume(this)
}

fn is_reading(this: ReadPipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("is_reading", 0)?;
    Ok(this.is_reading())
}

fn close_read(this: ReadPipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("close", 0)?;
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "close"));
    }
    lifecycle::lose(this, None)
}

fn start_reading(this: ReadPipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_start_polling", 0)?;
    read::start(this)
}

fn paused(this: ReadPipe_<'_, '_>) -> PyResult<bool> {
    Ok(this.is_paused())
}

fn write_(this: WritePipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    let data = one(args, "write", intern!(this.py(), "data"))?;
    let is_bytes_like = data.is_instance_of::<PyBytes>()
        || data.is_instance_of::<PyByteArray>()
        || data.is_instance_of::<PyMemoryView>();
    if !is_bytes_like {
        return Err(PyAssertionError::raise_with(&data.repr()?));
    }
    if this.end().is_elsewhere() {
        return thread::hand_over_bytes(this, &[take_over(data)?]);
    }
    if !data.is_truthy()? || write::dropped(this)? {
        return Ok(());
    }
    match take_over(data) {
        Ok(buf) => write::write(this, buf),
        // asyncio finds out in os.write(), where it ends the transport.
        Err(error) if this.size() == 0 => write::failed(this, error),
        Err(error) => Err(error),
    }
}

/// Also `close`, which is the same for a pipe.
fn write_eof(this: WritePipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("write_eof", 0)?;
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "write_eof"));
    }
    write::write_eof(this)
}

fn can_write_eof(_this: WritePipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<bool> {
    args.expect_positional("can_write_eof", 0)?;
    Ok(true)
}

fn abort(this: WritePipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("abort", 0)?;
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "abort"));
    }
    write::abort(this, None)
}

fn start_writing(this: WritePipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_start_polling", 0)?;
    write::start(this)
}

fn write_ready(this: WritePipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_write_ready", 0)?;
    poll::run(this, Role::Write)
}

fn get_write_buffer_size(this: WritePipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<u64> {
    args.expect_positional("get_write_buffer_size", 0)?;
    Ok(this.size() as u64)
}

fn get_write_buffer_limits<'py>(
    this: WritePipe_<'_, 'py>,
    args: Args<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    args.expect_positional("get_write_buffer_limits", 0)?;
    this.flow().limits(this.py())
}

fn set_write_buffer_limits(this: WritePipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    this.flow().set_limits(this.py(), args)?;
    flow::maybe_pause(this, this.size())
}

fn conn_lost(this: WritePipe_<'_, '_>) -> PyResult<u64> {
    Ok(u64::from(this.lost_writes.get()))
}

fn protocol_paused(this: WritePipe_<'_, '_>) -> PyResult<bool> {
    Ok(this.flow().is_paused())
}

fn repr_read<'py>(this: ReadPipe_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    repr(this, this.is_polling(), "")
}

fn repr_write<'py>(this: WritePipe_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let size = format!(" bufsize={}", this.size());
    repr(this, this.is_polling(), &size)
}

/// As asyncio writes it, with our class's name.
fn repr<'py, T: Pipe>(
    this: This<'_, 'py, T>,
    is_polling: bool,
    size: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let end = this.end();
    let name = this.object().get_type().name()?;
    let fd = end.fd;
    let state = if end.is_closing() { " closing" } else { "" };
    let text = if !end.pipe.is_some() {
        format!("<{name} closed fd={fd} closed>")
    } else if end.core(this.py())?.get().is_closed() {
        format!("<{name}{state} fd={fd} open>")
    } else {
        let polling = if is_polling { "polling" } else { "idle" };
        format!("<{name}{state} fd={fd} {polling}{size}>")
    };
    text.into_object(this.py())
}
