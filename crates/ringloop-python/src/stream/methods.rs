//! The transport's Python methods: `asyncio.Transport`, and what else the standard library reads.
//!
//! Called by: user code. Arguments are checked here; the parts do the work.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::state::{Stream, Stream_};
use super::{read, sendfile, write};
use crate::ffi::{self, Argument, Definition, Obj, Raise as _, intern, members, repr_slot};
use crate::transport::queue::joined;
use crate::transport::thread::{self, Change};
use crate::transport::{base, flow, socket};

pub(super) fn define(type_: &mut Definition<Stream>) {
    base::define(type_);
    base::define_reading(type_);
    flow::define(type_);
    socket::define(type_);
    members!(type_, Stream;
        write(data) => write_, "Send data; returns at once.";
        writelines(list_of_data) => writelines, "Send several pieces of data.";
        write_eof() => write_eof, "Close the writing side once everything is sent.";
        can_write_eof() => |_this| true, "Say that write_eof() works.";
        _deliver_held() => read::deliver_held, "Deliver what came during a pause.";
        _force_close(exc) => force_close, "Close now, with this exception for connection_lost().";
        _fatal_error(exc, message="Fatal error on transport") => fatal_error, "Report an error and close.";
        _make_empty_waiter() => sendfile::make_empty_waiter, "Refuse writes; the future is done once all is sent.";
        _reset_empty_waiter() => sendfile::reset_empty_waiter, "Accept writes again.";
        get _server => |this| this.server.get_or_none(this.py()), "The server that accepted it, or None.";
        get _eof => |this| this.write.eof.get(), "Whether write_eof() was called.";
        get _start_tls_compatible => |_this| true, "loop.start_tls() accepts it.";
        get _sendfile_compatible => |this| sendfile::mode(intern!(this.py(), "TRY_NATIVE")), "loop.sendfile() tries its socket first.";
    );
    type_.repr(repr_slot!(Stream, repr));
}

fn write_(this: Stream_<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    write::write_buf(this, ffi::take_over(data)?)
}

fn writelines(this: Stream_<'_, '_>, list: Argument<'_, '_>) -> PyResult<()> {
    let mut bufs = Vec::new();
    for data in list.try_iter()? {
        bufs.try_reserve(1).map_err(ffi::no_memory)?;
        bufs.push(ffi::take_over(data?.as_borrowed())?);
    }
    if this.write.eof.get() {
        return Err(PyRuntimeError::raise("Cannot call writelines() after write_eof()"));
    }
    if sendfile::in_progress(this) {
        return Err(PyRuntimeError::raise("unable to writelines; sendfile is in progress"));
    }
    if this.base.is_elsewhere() {
        return thread::hand_over_bytes(this, &bufs);
    }
    bufs.retain(|buf| !buf.is_empty());
    if bufs.is_empty() || write::dropped(this)? {
        return Ok(());
    }
    if this.keeps_messages && bufs.len() > 1 {
        // One call is one message, like asyncio's sendmsg(2).
        bufs = vec![joined(&bufs)?];
    }
    write::enqueue(this, bufs.into_iter())
}

fn write_eof(this: Stream_<'_, '_>) -> PyResult<()> {
    let name = intern!(this.py(), "write_eof");
    thread::in_loop(this, name, Change::Other, write::write_eof)
}

fn force_close(this: Stream_<'_, '_>, error: Argument<'_, '_>) -> PyResult<()> {
    let error = (!error.is_none()).then(|| Obj::from_borrowed(error));
    socket::force_close(this, error)
}

fn fatal_error(
    this: Stream_<'_, '_>,
    error: Argument<'_, '_>,
    message: Option<Argument<'_, '_>>,
) -> PyResult<()> {
    let message = match message {
        Some(message) => message.extract::<String>()?,
        None => "Fatal error on transport".to_owned(),
    };
    base::fatal_error(this, PyErr::from_value(error.to_owned()), &message)
}

fn repr<'py>(this: Stream_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    socket::repr(this, this.read.is_polling(), !this.write.is_empty())
}
