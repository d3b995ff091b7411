//! How a pipe transport begins: its checks, its parts, and what is scheduled first.
//!
//! Called by: the loop, for `connect_read_pipe`, `connect_write_pipe` and a child's pipes.
//! Never does: close a pipe that it has refused; that is the caller's.

use std::os::fd::RawFd;

use pyo3::exceptions::{PySystemError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use ringloop::embed::sys::file::{self, FileKind};
use ringloop::embed::sys::socket;

use super::lifecycle::{self, State};
use super::read::ReadPipe;
use super::write::WritePipe;
use super::{End, Pipe};
use crate::error;
use crate::event_loop::LoopCore;
use crate::ffi::{self, ObjCell, Raise as _, This, intern};

/// What both functions are given.
struct Parts<'a, 'py> {
    loop_: &'a Bound<'py, LoopCore>,
    pipe: &'a Bound<'py, PyAny>,
    protocol: &'a Bound<'py, PyAny>,
    waiter: Option<&'a Bound<'py, PyAny>>,
    extra: Option<&'a Bound<'py, PyDict>>,
}

/// Make a transport that reads a pipe; `connection_made` is scheduled.
#[pyfunction]
#[pyo3(signature = (loop_, pipe, protocol, waiter, extra))]
pub(super) fn make_read_pipe_transport<'py>(
    loop_: &Bound<'py, LoopCore>,
    pipe: &Bound<'py, PyAny>,
    protocol: &Bound<'py, PyAny>,
    waiter: Option<&Bound<'py, PyAny>>,
    extra: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let parts = Parts {
        loop_,
        pipe,
        protocol,
        waiter,
        extra,
    };
    let end = parts.end("Pipe transport is for pipes/sockets only.")?;
    parts.begin(ReadPipe::new(end), true)
}

/// Make a transport that writes to a pipe; `connection_made` is scheduled.
#[pyfunction]
#[pyo3(signature = (loop_, pipe, protocol, waiter, extra))]
pub(super) fn make_write_pipe_transport<'py>(
    loop_: &Bound<'py, LoopCore>,
    pipe: &Bound<'py, PyAny>,
    protocol: &Bound<'py, PyAny>,
    waiter: Option<&Bound<'py, PyAny>>,
    extra: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let parts = Parts {
        loop_,
        pipe,
        protocol,
        waiter,
        extra,
    };
    let end = parts.end("Pipe transport is only for pipes, sockets and character devices")?;
    // A device that is written to says nothing of its other end by becoming readable.
    let watches_peer = !end.kind.is_device();
    parts.begin(WritePipe::new(end), watches_peer)
}

impl<'py> Parts<'_, 'py> {
    /// Check the pipe, and make it non-blocking.
    fn end(&self, refusal: &'static str) -> PyResult<End> {
        let py = self.loop_.py();
        let fd: RawFd = self.pipe.call_method0(intern!(py, "fileno"))?.extract()?;
        let kind = file::kind(fd).map_err(|error| error::from_io(&error))?;
        if kind == FileKind::Other {
            return Err(PyValueError::raise(refusal));
        }
        let keeps_messages = socket::keeps_messages(fd).map_err(|error| error::from_io(&error))?;
        file::set_nonblocking(fd, true).map_err(|error| error::from_io(&error))?;
        Ok(End {
            loop_: ObjCell::new(Some(self.loop_.clone().into_any().into())),
            running_thread: self.loop_.get().running_thread(),
            pipe: ObjCell::new(Some(self.pipe.clone().into())),
            protocol: ObjCell::new(Some(self.protocol.clone().into())),
            fd,
            kind,
            keeps_messages,
            state: std::cell::Cell::new(State::Open),
        })
    }

    /// Make the transport and schedule `connection_made`, the first poll and the waiter, in this order.
    fn begin<T: Pipe>(&self, payload: T, polls: bool) -> PyResult<Bound<'py, PyAny>> {
        static SET_RESULT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = self.loop_.py();
        let transport = T::native().instantiate(py, payload)?;
        let extra = match self.extra {
            Some(known) => known.copy()?,
            None => ffi::new_dict(py)?,
        };
        extra.set_item(intern!(py, "pipe"), self.pipe)?;
        transport.setattr(intern!(py, "_extra"), extra)?;
        let Some(this) = T::native().get(&transport) else {
            return Err(PySystemError::raise("a new transport has another type"));
        };
        self.schedule(this, polls)?;
        if let Some(waiter) = self.waiter {
            let set_result = ffi::imported(
                &SET_RESULT,
                intern!(py, "asyncio.futures"),
                intern!(py, "_set_result_unless_cancelled"),
            )?;
            self.loop_
                .getattr(intern!(py, "call_soon"))?
                .call1((set_result, waiter, py.None()))?;
        }
        Ok(transport)
    }

    fn schedule<T: Pipe>(&self, this: This<'_, 'py, T>, polls: bool) -> PyResult<()> {
        let py = this.py();
        let made = self.protocol.getattr(intern!(py, "connection_made"))?;
        let transport = this.object().to_owned();
        lifecycle::schedule(this, made.into(), Some(transport.into()))?;
        if polls {
            let start = this.object().getattr(intern!(py, "_start_polling"))?;
            lifecycle::schedule(this, start.into(), None)?;
        }
        Ok(())
    }
}
