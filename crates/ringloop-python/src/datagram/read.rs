//! The reading side: from "readable" to `datagram_received`.
//!
//! Owns: the poll for reading, and datagrams received but not delivered. Called by: the turn,
//! `methods` (pause, resume), the module's root (stop).
//!
//! On both drivers the engine reports the socket readable; then one recvmmsg(2) receives a batch
//! into the loop's own memory. The batch size is doubled after a full batch and halved after a
//! small one, so that an endpoint that answers one datagram at a time pays for one.
//!
//! Addresses of families other than INET, INET6 and UNIX are made by the interpreter: such a socket
//! receives with its own `recvfrom`, one datagram per event, as asyncio does.
//!
//! An error that leaves the socket readable may persist, for example if a filter denies the call.
//! After a few in a row the poll pauses, for increasing times.
//!
//! On a socket created by the loop, a flooded endpoint enables `UDP_GRO`: the kernel passes batches
//! of datagrams, which are split here, so that the protocol sees each. Not before a flood: the
//! first such socket of a machine costs it hundreds of microseconds, and so does closing the last
//! one. A duplicate of the descriptor would receive batches too, so the option is reset before the
//! endpoint closes its socket, and is never set on a socket that the application brought.

use ringloop::embed::sys::fd::RawFd;
use std::io;

use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringloop::embed::sys::address::SockAddr;
use ringloop::embed::sys::datagram::{self, Batch, Control};
use ringloop::embed::sys::file;
use ringloop::embed::sys::interest::Interest;

use super::state::{Datagram, Datagram_, Gro, Role};
use crate::error;
use crate::event_loop::exceptions::leaves_the_loop;
use crate::event_loop::poll;
use crate::ffi::{self, Fallible, Obj, Raise, intern};
use crate::limits;
use crate::transport::address;
use crate::transport::base::{
    self, Readable, call_soon, read_failed, report_callback, with_protocol,
};
use crate::transport::socket::{self, Armed, Wish};

/// Starts reading; scheduled right after `connection_made`, and after a pause.
pub(super) fn start(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.read.rests.replace(false) {
        return arm(this);
    }
    if this.read.wish.get() != Wish::NotStarted {
        return Ok(());
    }
    this.read.wish.set(Wish::Read);
    arm(this)
}

/// Stops permanently.
pub(super) fn stop(this: Datagram_<'_, '_>) -> PyResult<()> {
    this.read.wish.set(Wish::Stop);
    drop(this.read.held.take());
    socket::disarm(this, &this.read.armed)
}

impl Readable for Datagram {
    fn is_paused(&self) -> bool {
        self.read.is_paused()
    }

    fn pause(this: Datagram_<'_, '_>) -> PyResult<bool> {
        match this.read.wish.get() {
            Wish::Read | Wish::NotStarted => {
                this.read.wish.set(Wish::Pause);
                socket::disarm(this, &this.read.armed)?;
                socket::rest_if_idle(this)?;
                Ok(true)
            }
            Wish::Pause | Wish::Stop => Ok(false),
        }
    }

    fn resume(this: Datagram_<'_, '_>) -> PyResult<bool> {
        if this.read.wish.get() != Wish::Pause {
            return Ok(false);
        }
        this.read.wish.set(Wish::Read);
        if holds(this) {
            schedule(this)?;
        } else {
            arm(this)?;
        }
        Ok(true)
    }
}

/// The socket is about to be closed: a duplicate of it receives single datagrams again.
pub(super) fn end_gro(this: Datagram_<'_, '_>) {
    if this.read.gro.replace(Gro::Never) == Gro::On {
        // The application may have closed it.
        drop(datagram::set_gro(this.socket.fd(this.py()), false));
    }
}

fn holds(this: Datagram_<'_, '_>) -> bool {
    !this.read.held.borrow().is_empty()
}

/// Makes the engine poll, unless it already does or must not.
pub(super) fn arm(this: Datagram_<'_, '_>) -> PyResult<()> {
    let idle = this.read.armed.get() == Armed::Nothing;
    let wanted = this.read.wish.get() == Wish::Read && !this.read.rests.get();
    if idle && wanted && !holds(this) {
        let poll = poll(this.socket.fd(this.py()), Interest::READ);
        let key = socket::submit(this, Role::Read as u8, poll)?;
        this.read.armed.set(Armed::Running(key));
    }
    Ok(())
}

/// The socket is readable: receives after what is ready already, like a selector's callback; a task
/// that sends to itself and then waits must wait before the datagram arrives.
pub(super) fn ready(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.read.wish.get() != Wish::Read || holds(this) {
        return socket::disarm(this, &this.read.armed);
    }
    if this.read.scheduled.replace(true) {
        return Ok(());
    }
    let py = this.py();
    let method = intern!(py, "_read_ready");
    let context = ffi::context_copy_current(py);
    this.base.core(py)?.get().bring_method(this.object(), method, context)
}

/// `_read_ready`: delivers held datagrams, or receives.
pub(super) fn read_ready(this: Datagram_<'_, '_>) -> PyResult<()> {
    this.read.scheduled.set(false);
    if this.read.wish.get() != Wish::Read {
        return Ok(());
    }
    let done = if holds(this) {
        deliver(this)
    } else if !address::knows(this.family) {
        receive_by_python(this)
    } else {
        receive_and_deliver(this)
    };
    base::or_end(this, done.and(arm(this)))
}

fn receive_and_deliver(this: Datagram_<'_, '_>) -> PyResult<()> {
    match receive(this)? {
        Ok(Ok(())) => {
            this.read.errors.set(0);
            deliver(this)
        }
        Ok(Err(error)) => read_failed(this, error),
        Err(error) if error::is_blocked(&error) => {
            this.read.errors.set(0);
            Ok(())
        }
        Err(error) => failed(this, error::from_io(&error)),
    }
}

/// Receives like asyncio: by the socket's own method, which makes the source's address.
fn receive_by_python(this: Datagram_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let socket = this.socket.get_or_none(py);
    let arguments = (Fallible(limits::DATAGRAM_BYTES_MAX),);
    match socket.call_method1(intern!(py, "recvfrom"), arguments) {
        Ok(received) => {
            this.read.errors.set(0);
            let received = received.cast::<PyTuple>()?;
            let bytes: Obj = received.get_item(0)?.into();
            let source: Obj = received.get_item(1)?.into();
            let told = with_protocol(this, |protocol| {
                let method = intern!(py, "datagram_received");
                ffi::call_method(py, method, &[protocol, &bytes, &source])
            });
            report_callback(this, told.map(drop), "_read_ready")
        }
        Err(error) if error::would_block(py, &error) => {
            this.read.errors.set(0);
            Ok(())
        }
        Err(error) if error.is_instance_of::<PyOSError>(py) => failed(this, error),
        Err(error) if leaves_the_loop(py, &error) => Err(error),
        Err(error) => read_failed(this, error),
    }
}

/// The protocol gets errors of the kernel.
fn failed(this: Datagram_<'_, '_>, error: PyErr) -> PyResult<()> {
    let py = this.py();
    let rested = rest_where_it_persists(this);
    let exception = error.into_value(py).into_bound(py);
    let argument = Obj::from(exception.clone().into_any());
    let told = with_protocol(this, |protocol| {
        // As asyncio, inside of `except`.
        ffi::while_handled(&exception, || {
            ffi::call_method(py, intern!(py, "error_received"), &[protocol, &argument])
        })
    });
    rested.and(report_callback(this, told.map(drop), "_read_ready"))
}

/// Pauses polling when errors repeat.
fn rest_where_it_persists(this: Datagram_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let is_readable =
        file::poll_now(this.socket.fd(py), Interest::READ).is_ok_and(|ready| !ready.is_none());
    let errors = if is_readable { this.read.errors.get().saturating_add(1) } else { 0 };
    this.read.errors.set(errors);
    let Some(doublings) = errors.checked_sub(limits::RECEIVE_ERRORS_BEFORE_PAUSE) else {
        return Ok(());
    };
    this.read.rests.set(true);
    socket::disarm(this, &this.read.armed)?;
    let pause = limits::RECEIVE_PAUSE_MILLISECONDS
        .saturating_mul(1 << doublings.min(32))
        .min(limits::RECEIVE_PAUSE_MILLISECONDS_MAX);
    let again = this.object().getattr(intern!(py, "_start_reading"))?;
    let seconds = pause as f64 / 1000.0;
    this.base
        .owner
        .loop_(py)
        .call_method1(intern!(py, "call_later"), (Fallible(seconds), again))?;
    Ok(())
}

/// Receives one batch into the delivery queue; the inner error means that there was no memory for
/// received datagrams.
fn receive(this: Datagram_<'_, '_>) -> PyResult<io::Result<PyResult<()>>> {
    let py = this.py();
    let wanted = this.read.batch_count.get();
    let fd = this.socket.fd(py);
    let control = match this.read.gro.get() {
        Gro::On => Control::Wanted,
        Gro::Never | Gro::Possible => Control::Unwanted,
    };
    let mut held = this.read.held.borrow_mut();
    let received = this.base.core(py)?.get().datagrams.with(|batch| {
        let mut one;
        let batch = match with_room(batch) {
            Some(batch) => batch,
            None => match Batch::new(1, limits::DATAGRAM_BYTES_MAX) {
                Ok(made) => {
                    one = made;
                    &mut one
                }
                // As in asyncio without memory for its receive: nothing was taken, and the endpoint
                // ends.
                Err(_) => return Ok(Err(PyMemoryError::raise_bare())),
            },
        };
        let count = batch.receive(fd, control, wanted)?;
        for message in batch.received() {
            for bytes in message.datagrams() {
                this.base.owner.received(bytes.len());
                let copied = held
                    .try_reserve(1)
                    .map_err(ffi::no_memory)
                    .and_then(|()| ffi::copy_bytes(py, bytes));
                match copied {
                    Ok(bytes) => held.push_back((bytes, message.source.clone())),
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        Ok(Ok(count))
    })?;
    drop(held);
    Ok(received.map(|count| {
        let count = count?;
        if count == limits::DATAGRAMS_PER_EVENT {
            flooded(this, fd);
        }
        let next = if count == wanted {
            (wanted * 2).min(limits::DATAGRAMS_PER_EVENT)
        } else if count * 2 <= wanted {
            (wanted / 2).max(1)
        } else {
            wanted
        };
        this.read.batch_count.set(next);
        Ok(())
    }))
}

/// The loop's own batch; `None` if there is no memory for one.
fn with_room(batch: &mut Option<Batch>) -> Option<&mut Batch> {
    if batch.is_none() {
        *batch = Batch::new(limits::DATAGRAMS_PER_EVENT, limits::DATAGRAM_BYTES_MAX).ok();
    }
    batch.as_mut()
}

/// A full batch arrived.
fn flooded(this: Datagram_<'_, '_>, fd: RawFd) {
    if this.read.gro.get() == Gro::Possible {
        this.read.gro.set(match datagram::set_gro(fd, true) {
            Ok(()) => Gro::On,
            Err(_) => Gro::Never,
        });
    }
}

/// Delivers received datagrams to the protocol, until it pauses, or the budget is used up.
fn deliver(this: Datagram_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    for _ in 0..limits::DATAGRAMS_PER_STEP {
        if this.read.wish.get() != Wish::Read {
            return Ok(());
        }
        let Some((bytes, source)) = this.read.held.borrow_mut().pop_front() else {
            return Ok(());
        };
        let source = match source_object(this, &source) {
            Ok(source) => source,
            Err(error) => return read_failed(this, error),
        };
        let told = with_protocol(this, |protocol| {
            let method = intern!(py, "datagram_received");
            ffi::call_method(py, method, &[protocol, &bytes, &source])
        });
        if let Err(error) = told {
            if leaves_the_loop(py, &error) && holds(this) {
                // The rest is for the next run.
                schedule(this)?;
            }
            report_callback(this, Err(error), "_read_ready")?;
        }
    }
    if this.read.wish.get() == Wish::Read && holds(this) {
        schedule(this)?;
    }
    Ok(())
}

/// Python's form of a source: the last datagram's object, if it is the same.
fn source_object(this: Datagram_<'_, '_>, source: &SockAddr) -> PyResult<Obj> {
    let py = this.py();
    if let Some((known, object)) = &this.seen.borrow().source
        && known == source
    {
        return Ok(object.clone_ref(py));
    }
    let object = address::to_python(py, source)?;
    let seen = (source.clone(), object.clone_ref(py));
    let old = this.seen.borrow_mut().source.replace(seen);
    drop(old);
    Ok(object)
}

/// Calls `_read_ready` in the next pass, unless it is scheduled already.
fn schedule(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.read.scheduled.replace(true) {
        return Ok(());
    }
    call_soon(this, intern!(this.py(), "_read_ready"))
}
