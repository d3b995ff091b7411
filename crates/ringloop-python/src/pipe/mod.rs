//! The pipe transports: one end of a pipe, a socket or a character device, and its protocol.
//!
//! Owns: their creation, for `connect_read_pipe`, `connect_write_pipe` and a child's pipes; a rejected
//! pipe is left open for the caller. [`read`] is the reading end, [`write`] the writing end, and
//! [`end`] what both have. Called by: the loop, the turn (completions), user code. On both drivers
//! the engine polls the descriptor and the system call is made here: a ring does not wait on
//! non-blocking descriptors, which these must be.
//!
//! Byte path in: `event_loop::turn` → [`end`] → [`read`] → read(2) → `protocol.data_received`.
//! Byte path out: `transport.write` → [`write`] → write(2), or the queue → writev(2).
//!
//! The behaviour matches `asyncio.unix_events._UnixReadPipeTransport` and `_UnixWritePipeTransport`
//! exactly.

mod end;
mod read;
mod write;

use ringloop::embed::sys::fd::RawFd;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringloop::embed::sys::file::{self, FileKind};
use ringloop::embed::sys::socket;

use crate::error;
use crate::event_loop::LoopCore;
use crate::ffi::{self, Native, ObjCell, Payload, Raise as _, intern};
use crate::transport::base::{self, Base};
use crate::transport::socket::new_one;

use end::{End, Pipe};
use read::ReadPipe;
use write::WritePipe;

pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let transports = py.import(intern!(py, "asyncio.transports"))?;
    let read_base = transports.getattr(intern!(py, "ReadTransport"))?;
    let bases = [
        transports.getattr(intern!(py, "_FlowControlMixin"))?,
        transports.getattr(intern!(py, "WriteTransport"))?,
    ];
    let write_base = ffi::new_base(intern!(py, "WritePipeTransportBase"), bases)?;
    add(module, ReadPipe::native(), &read_base)?;
    add(module, WritePipe::native(), &write_base)?;
    module.add_function(wrap_pyfunction!(make_read_pipe_transport, module)?)?;
    module.add_function(wrap_pyfunction!(make_write_pipe_transport, module)?)
}

fn add<T: Payload>(
    module: &Bound<'_, PyModule>,
    native: &'static Native<T>,
    base: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let class = native.create(module.py(), base.cast()?)?;
    module.add(class.name()?.to_string().as_str(), class)
}

/// Make a transport that reads a pipe; `connection_made` is scheduled.
#[pyfunction]
#[pyo3(signature = (loop_, pipe, protocol, waiter, extra))]
fn make_read_pipe_transport<'py>(
    loop_: &Bound<'py, LoopCore>,
    pipe: &Bound<'py, PyAny>,
    protocol: &Bound<'py, PyAny>,
    waiter: Option<&Bound<'py, PyAny>>,
    extra: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let refusal = "Pipe transport is for pipes/sockets only.";
    let end = check(loop_, pipe, protocol, refusal)?;
    let transport = instantiate(ReadPipe::new(end), pipe, extra)?;
    schedule::<ReadPipe>(&transport, protocol, waiter, true)?;
    Ok(transport)
}

/// Make a transport that writes to a pipe; `connection_made` is scheduled.
#[pyfunction]
#[pyo3(signature = (loop_, pipe, protocol, waiter, extra))]
fn make_write_pipe_transport<'py>(
    loop_: &Bound<'py, LoopCore>,
    pipe: &Bound<'py, PyAny>,
    protocol: &Bound<'py, PyAny>,
    waiter: Option<&Bound<'py, PyAny>>,
    extra: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let refusal = "Pipe transport is only for pipes, sockets and character devices";
    let end = check(loop_, pipe, protocol, refusal)?;
    // For a writable device, readability says nothing about its other end.
    let watches_peer = !end.kind.is_device();
    let transport = instantiate(WritePipe::new(end), pipe, extra)?;
    schedule::<WritePipe>(&transport, protocol, waiter, watches_peer)?;
    Ok(transport)
}

/// Checks the pipe, and makes it non-blocking.
fn check(
    loop_: &Bound<'_, LoopCore>,
    pipe: &Bound<'_, PyAny>,
    protocol: &Bound<'_, PyAny>,
    refusal: &'static str,
) -> PyResult<End> {
    let fd: RawFd = pipe.call_method0(intern!(pipe.py(), "fileno"))?.extract()?;
    let kind = file::kind(fd).map_err(|error| error::from_io(&error))?;
    if kind == FileKind::Other {
        return Err(PyValueError::raise(refusal));
    }
    let keeps_messages = socket::keeps_messages(fd).map_err(|error| error::from_io(&error))?;
    file::set_nonblocking(fd, true).map_err(|error| error::from_io(&error))?;
    Ok(End {
        base: Base::new(loop_, Some(protocol), None),
        pipe: ObjCell::new(Some(pipe.clone().into())),
        fd,
        kind,
        keeps_messages,
    })
}

fn instantiate<'py, T: Pipe>(
    transport: T,
    pipe: &Bound<'py, PyAny>,
    extra: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = pipe.py();
    let transport = T::native().instantiate(py, transport)?;
    let extra = base::copy_extra(py, extra)?;
    extra.set_item(intern!(py, "pipe"), pipe)?;
    transport.setattr(intern!(py, "_extra"), extra)?;
    Ok(transport)
}

/// Schedules `connection_made`, then the first poll, which wakes the waiter.
fn schedule<T: Pipe>(
    transport: &Bound<'_, PyAny>,
    protocol: &Bound<'_, PyAny>,
    waiter: Option<&Bound<'_, PyAny>>,
    polls: bool,
) -> PyResult<()> {
    let py = transport.py();
    let loop_ = new_one::<T>(transport)?.end().base.core(py)?;
    let call_soon = |callback: Bound<'_, PyAny>, argument: Bound<'_, PyAny>| {
        let context = ffi::context_copy_current(py)?;
        loop_.get().call_soon_step(callback.into(), Some(argument.into()), context)
    };
    let made = protocol.getattr(intern!(py, "connection_made"))?;
    call_soon(made, transport.clone())?;
    if polls {
        let waiter = waiter.cloned().unwrap_or_else(|| py.None().into_bound(py));
        return call_soon(transport.getattr(intern!(py, "_start_polling"))?, waiter);
    }
    waiter.map_or(Ok(()), |waiter| base::wake_soon(&loop_, waiter))
}
