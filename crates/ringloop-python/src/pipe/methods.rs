//! The Python methods of both pipe transports: `asyncio.ReadTransport`, `asyncio.WriteTransport`, and
//! what asyncio's own have beside them.
//!
//! Called by: user code. Never does: more than check arguments and hand over to a part.

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

use super::poll::{self, Role};
use super::read::{self, ReadPipe, ReadPipe_};
use super::write::{self, WritePipe, WritePipe_};
use super::{Pipe, lifecycle};
use crate::ffi::{
    Args, Definition, IntoObject as _, Obj, Raise as _, This, intern, members, repr_slot,
};
use crate::transport::methods::one;
use crate::transport::write::take_over;
use crate::transport::{Writable, flow, thread};

/// List the members of the reading end.
pub(super) fn define_read(type_: &mut Definition<ReadPipe>) {
    define_common!(ReadPipe, type_);
    members!(type_, ReadPipe;
        pause_reading() => pause_reading, "Deliver nothing until resume_reading().";
        resume_reading() => resume_reading, "Deliver again.";
        is_reading() => is_reading, "Say whether data is delivered.";
        close() => close_read, "Close the pipe.";
        _start_polling() => start_reading, "Begin to read, after connection_made.";
        get _paused => paused, "Whether reading is paused.";
    );
    type_.repr(repr_slot!(ReadPipe, repr_read));
}

/// List the members of the writing end.
pub(super) fn define_write(type_: &mut Definition<WritePipe>) {
    define_common!(WritePipe, type_);
    members!(type_, WritePipe;
        write("data") => write_, "Write data; returns at once.";
        write_eof() => write_eof, "Close the pipe once everything is written.";
        can_write_eof() => can_write_eof, "Return True.";
        close() => write_eof, "Close the pipe once everything is written.";
        abort() => abort, "Close the pipe now; what was not written is lost.";
        _start_polling() => start_writing, "Watch for the other end to be closed, after connection_made.";
        _write_ready() => write_ready, "Write what is queued.";
        get_write_buffer_size() => get_write_buffer_size, "Return how many bytes wait to be written.";
        get_write_buffer_limits() => get_write_buffer_limits, "Return the low and high water marks, in bytes.";
        set_write_buffer_limits("high=None, low=None") => set_write_buffer_limits, "Set the water marks, in bytes.";
        get _conn_lost => conn_lost, "Writes that failed or came after the end.";
        get _protocol_paused => protocol_paused, "Whether the protocol was told to stop writing.";
    );
    type_.repr(repr_slot!(WritePipe, repr_write));
}

/// The members that both ends have.
macro_rules! define_common {
    ($target:ty, $type_:expr) => {{
        members!($type_, $target;
            set_protocol("protocol") => set_protocol, "Hand the pipe to another protocol.";
            get_protocol() => protocol, "Return the current protocol.";
            is_closing() => closing, "Say whether it is closing or closed.";
            _read_ready() => read_ready, "Read, or see that the other end is closed.";
            _call_connection_lost("exc") => call_connection_lost, "Tell the protocol and close the pipe.";
            get _loop => loop_, "The loop.";
            get _pipe => pipe, "The file object; None once closed.";
            get _fileno => fileno, "The pipe's descriptor.";
            get _protocol => protocol, "The protocol; None once lost.";
            get _closing => closing, "Whether it is closing or closed.";
        );
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

fn read_ready<T: Pipe>(this: This<'_, '_, T>) -> PyResult<()> {
    poll::run(this, Role::Read)
}

fn call_connection_lost<T: Pipe>(this: This<'_, '_, T>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("_call_connection_lost", 1)?;
    match args.get(0) {
        Some(error) => lifecycle::connection_lost(this, &Obj::from_borrowed(error)),
        None => Ok(()),
    }
}

fn loop_<'py, T: Pipe>(this: This<'_, 'py, T>) -> Bound<'py, PyAny> {
    this.end().loop_.get_or_none(this.py())
}

fn pipe<'py, T: Pipe>(this: This<'_, 'py, T>) -> Bound<'py, PyAny> {
    this.end().pipe.get_or_none(this.py())
}

fn fileno<'py, T: Pipe>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    this.end().fd.into_object(this.py())
}

fn protocol<'py, T: Pipe>(this: This<'_, 'py, T>) -> Bound<'py, PyAny> {
    this.end().protocol.get_or_none(this.py())
}

fn closing<T: Pipe>(this: This<'_, '_, T>) -> bool {
    this.end().is_closing()
}

fn pause_reading(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "pause_reading"));
    }
    read::pause(this)
}

fn resume_reading(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "resume_reading"));
    }
    read::resume(this)
}

fn is_reading(this: ReadPipe_<'_, '_>) -> bool {
    this.is_reading()
}

fn close_read(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "close"));
    }
    lifecycle::lose(this, None)
}

fn start_reading(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    read::start(this)
}

fn paused(this: ReadPipe_<'_, '_>) -> bool {
    this.is_paused()
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
fn write_eof(this: WritePipe_<'_, '_>) -> PyResult<()> {
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "write_eof"));
    }
    write::write_eof(this)
}

fn can_write_eof(_this: WritePipe_<'_, '_>) -> bool {
    true
}

fn abort(this: WritePipe_<'_, '_>) -> PyResult<()> {
    if this.end().is_elsewhere() {
        return thread::hand_over(this, intern!(this.py(), "abort"));
    }
    write::abort(this, None)
}

fn start_writing(this: WritePipe_<'_, '_>) -> PyResult<()> {
    write::start(this)
}

fn write_ready(this: WritePipe_<'_, '_>) -> PyResult<()> {
    poll::run(this, Role::Write)
}

fn get_write_buffer_size(this: WritePipe_<'_, '_>) -> u64 {
    this.size() as u64
}

fn get_write_buffer_limits<'py>(this: WritePipe_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    this.flow().limits(this.py())
}

fn set_write_buffer_limits(this: WritePipe_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    this.flow().set_limits(this.py(), args)?;
    flow::maybe_pause(this, this.size())
}

fn conn_lost(this: WritePipe_<'_, '_>) -> u64 {
    u64::from(this.lost_writes.get())
}

fn protocol_paused(this: WritePipe_<'_, '_>) -> bool {
    this.flow().is_paused()
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
