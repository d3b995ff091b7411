//! The Python methods of both pipe transports: `asyncio.ReadTransport`, `asyncio.WriteTransport`,
//! and additions of asyncio's own transports.
//!
//! Called by: user code. Arguments are checked here; the parts do the work.

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;

use super::poll::{self, Role};
use super::read::{self, ReadPipe, ReadPipe_};
use super::write::{self, WritePipe, WritePipe_};
use super::{End, Pipe};
use crate::ffi::{
    self, Argument, Definition, IntoObject as _, Raise as _, This, intern, members, repr_slot,
};
use crate::transport::base::{self, Endpoint as _};
use crate::transport::flow::{self, Writable as _};
use crate::transport::thread::{self, Change};

/// Lists the members of the reading end.
pub(super) fn define_read(type_: &mut Definition<ReadPipe>) {
    define(type_);
    base::define_reading(type_);
    members!(type_, ReadPipe;
        _start_polling() => read::start, "Begin to read, after connection_made.";
    );
    type_.repr(repr_slot!(ReadPipe, repr_read));
}

/// Lists the members of the writing end.
pub(super) fn define_write(type_: &mut Definition<WritePipe>) {
    define(type_);
    flow::define(type_);
    members!(type_, WritePipe;
        write(data) => write_, "Write data; returns at once.";
        write_eof() => write_eof, "Close the pipe once everything is written.";
        can_write_eof() => |_this| true, "Return True.";
        _start_polling() => write::start, "Watch for the other end to be closed, after connection_made.";
        _write_ready() => |this| poll::run(this, Role::Write), "Write what is queued.";
    );
    type_.repr(repr_slot!(WritePipe, repr_write));
}

fn define<T: Pipe>(type_: &mut Definition<T>) {
    base::define(type_);
    members!(type_, T: Pipe;
        _read_ready() => |this| poll::run(this, Role::Read), "Read, or see that the other end is closed.";
        get _pipe => |this| this.end().pipe.get_or_none(this.py()), "The file object; None once closed.";
        get _fileno => |this| this.end().fd.into_object(this.py()), "The pipe's descriptor.";
    );
}

fn write_(this: WritePipe_<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    if !ffi::is_bytes_like(data) {
        return Err(PyAssertionError::raise_with(&data.repr()?));
    }
    if this.base().is_elsewhere() {
        return thread::hand_over_bytes(this, &[ffi::take_over(data)?]);
    }
    if !data.is_truthy()? || write::dropped(this)? {
        return Ok(());
    }
    match ffi::take_over(data) {
        Ok(buf) => write::write(this, buf),
        // asyncio detects that in os.write(), which ends the transport.
        Err(error) if this.size() == 0 => write::failed(this, error),
        Err(error) => Err(error),
    }
}

fn write_eof(this: WritePipe_<'_, '_>) -> PyResult<()> {
    let name = intern!(this.py(), "write_eof");
    thread::in_loop(this, name, Change::Closing, write::write_eof)
}

fn repr_read<'py>(this: ReadPipe_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    repr(this, this.is_polling(), "")
}

fn repr_write<'py>(this: WritePipe_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let size = format!(" bufsize={}", this.size());
    repr(this, this.is_polling(), &size)
}

/// As asyncio formats it, with our class's name.
fn repr<'py, T: Pipe>(
    this: This<'_, 'py, T>,
    is_polling: bool,
    size: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let End { base, pipe, fd, .. } = this.end();
    let name = this.object().get_type().name()?;
    let state = if base.appears_closing() { " closing" } else { "" };
    let text = if !pipe.is_some() {
        format!("<{name} closed fd={fd} closed>")
    } else if base.core(this.py())?.get().is_closed() {
        format!("<{name}{state} fd={fd} open>")
    } else {
        let polling = if is_polling { "polling" } else { "idle" };
        format!("<{name}{state} fd={fd} {polling}{size}>")
    };
    text.into_object(this.py())
}
