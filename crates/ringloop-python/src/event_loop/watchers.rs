//! `add_reader` and `add_writer`: a level-triggered poll per direction.
//!
//! Called by: the loop's `_add_reader` and its kin. Semantics and exceptions are those of asyncio's selector loop: a file object that was closed while watched has
//! no descriptor any more and is found by its identity.

use ringloop::embed::sys::fd::RawFd;
use std::io;

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyInt;
use ringloop::embed::op;
use ringloop::embed::sys::{file, selector};

use super::callback::{Call, current_context};
use super::core::LoopCore;
use super::handle::{self, Handle};
use super::handlers::{Behaviour, Completed, Handler};
use super::ready::Ready;
use super::watched::Direction;
use crate::error;
use crate::ffi::{self, Args, Obj, Payload as _, Raise as _, intern};

fn poll_of(fd: RawFd, direction: Direction) -> op::Request {
    let poll = op::PollBorrowed { fd, interest: direction.interest(), mode: op::PollMode::Level };
    op::Request::PollBorrowed(poll)
}

/// Watches `args[0]`, a descriptor, and calls `args[1]` with the rest; returns the handle.
pub fn add<'py>(
    loop_: Borrowed<'_, 'py, LoopCore>,
    args: Args<'_, 'py>,
    direction: Direction,
    behaviour: &'static Behaviour,
) -> PyResult<Bound<'py, PyAny>> {
    let py = loop_.py();
    let core = loop_.get();
    core.check_open()?;
    let (Some(object), Some(callback)) = (args.get(0), args.get(1)) else {
        return Err(pyo3::exceptions::PyTypeError::raise("a descriptor and a callback are needed"));
    };
    let fd = watched_descriptor(core, object)?;
    let call = Call { callback, context: current_context(py)? };
    let handle = handle::new(Handle::default(), loop_, call, args, 2)?.into_bound(py);
    // The kernel reports a wrong descriptor later; asyncio's callers expect it here.
    if fd != core.engine.driver(|driver| driver.completions())? {
        check_watchable(fd, direction).map_err(|error| error::from_io(&error))?;
    }
    let handler = Handler { object: handle.clone().into(), behaviour };
    let watched = core.watch_by(handler, 0, poll_of(fd, direction))?;
    let watch = watched.map_err(|refusal| error::from_io(&refusal))?;
    let object = (!object.is_instance_of::<PyInt>()).then(|| Obj::from_borrowed(object));
    let (old, left) = core.watchers.with(|watchers| watchers.add(fd, direction, watch, object))?;
    drop(left);
    // Polled anew all the same: the old one may be of a file that was closed, whose number this is.
    if let Some(old) = old {
        cancel(py, core.unwatch(old)?)?;
    }
    Ok(handle)
}

/// Fails like epoll at once, on both drivers: `EBADF`, and `EPERM` for files that are always ready,
/// which a ring would report in a loop.
fn check_watchable(fd: RawFd, direction: Direction) -> io::Result<()> {
    file::poll_now(fd, direction.interest())?;
    selector::check_waits(fd)
}

/// Stops watching; whether there was a watcher.
pub fn remove(
    loop_: Borrowed<'_, '_, LoopCore>,
    args: Args<'_, '_>,
    direction: Direction,
) -> PyResult<bool> {
    let core = loop_.get();
    if core.is_closed() {
        return Ok(false);
    }
    args.expect_positional("remove", 1)?;
    let Some(object) = args.get(0) else {
        return Ok(false);
    };
    let fd = match watched_descriptor(core, object) {
        Ok(fd) => fd,
        // As in asyncio, which finds no such key.
        Err(error) if error.is_instance_of::<PyOverflowError>(loop_.py()) => return Ok(false),
        Err(error) => return Err(error),
    };
    let Some((watch, object)) = core.watchers.with(|watchers| watchers.remove(fd, direction))?
    else {
        return Ok(false);
    };
    // The caller may close the descriptor next.
    let old = core.unwatch(watch)?;
    drop(object);
    cancel(loop_.py(), old)?;
    Ok(true)
}

/// Functions of a watcher.
pub static WATCHER: Behaviour = Behaviour {
    completed: Completed::Bring(Ready::bring),
    flush: Behaviour::NEVER_FLUSHED,
    abandoned: Behaviour::NOTHING_LEFT,
};

/// Functions of the watcher of a child's exit: its callback comes after all of the child's output.
pub static CHILD: Behaviour = Behaviour {
    completed: Completed::Bring(Ready::bring_end),
    flush: Behaviour::NEVER_FLUSHED,
    abandoned: Behaviour::NOTHING_LEFT,
};

fn cancel(py: Python<'_>, handler: Option<Handler>) -> PyResult<()> {
    if let Some(handler) = handler {
        let object = handler.object.bind(py);
        if let Some(this) = Handle::native().get(object) {
            return ffi::locked(object, || handle::cancel_handle(this));
        }
    }
    Ok(())
}

/// The descriptor of a number or file object; a file object closed since is known by its identity.
fn watched_descriptor(core: &LoopCore, object: Borrowed<'_, '_, PyAny>) -> PyResult<RawFd> {
    descriptor(object).or_else(|error| {
        let known = core.watchers.with(|watchers| watchers.descriptor_of(object))?;
        known.ok_or(error)
    })
}

fn descriptor(object: Borrowed<'_, '_, PyAny>) -> PyResult<RawFd> {
    let py = object.py();
    let fd = match object.extract::<RawFd>() {
        Ok(fd) => fd,
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => {
            return Err(PyOverflowError::raise(format!(
                "fd is too large for a descriptor: {}",
                *object
            )));
        }
        Err(_) => object
            .call_method0(intern!(py, "fileno"))
            .and_then(|fd| fd.extract())
            .map_err(|_| PyValueError::raise(format!("Invalid file object: {}", *object)))?,
    };
    if fd < 0 {
        return Err(PyValueError::raise(format!("Invalid file descriptor: {fd}")));
    }
    Ok(fd)
}
