//! The writing end: from `transport.write` to write(2) and writev(2).
//!
//! Owns: the queue of data to write, the poll for room, and the poll that detects a closed reader.
//! Called by: `end`, and user code.
//!
//! * Nothing is gathered: the application has the descriptor, to which it may write itself, and may
//!   signal or wait for the process at the other end. What it wrote before must have left by then.
//! * If the other end receives messages, each write is a system call and a message of its own, even
//!   after one that the kernel had no room for. (asyncio joins those.)
//! * Exact `bytes` are kept by reference; every other buffer is copied, because its owner may
//!   change it.
//! * A write end that becomes readable has lost its reader: poll(2) reports an error for a pipe.

use std::ffi::CStr;
use std::io;

use pyo3::exceptions::{PyAssertionError, PyBrokenPipeError};
use pyo3::prelude::*;
use ringloop::buf::SendBuf;
use ringloop::embed::sys::file;

use super::end::{self, End, Pipe, Poller, Role};
use crate::error;
use crate::ffi::{
    self, Argument, Definition, Obj, Payload, Raise as _, This, intern, members, payload, repr_slot,
};
use crate::limits;
use crate::transport::base::{self, Endpoint, State, connection_lost, log_debug, write_failed};
use crate::transport::flow::{self, Flow, Writable};
use crate::transport::queue::SendQueue;
use crate::transport::thread::{self, Change};

/// A pipe being written.
pub struct WritePipe {
    end: End,
    /// Detects that the other end is closed.
    peer: Poller,
    /// Waits for room; polls while the kernel rejects bytes.
    writer: Poller,
    queue: SendQueue,
    flow: Flow,
}

/// The receiver of the functions of this module.
type WritePipe_<'a, 'py> = This<'a, 'py, WritePipe>;

impl WritePipe {
    pub(super) fn new(end: End) -> Self {
        Self {
            end,
            peer: Poller::default(),
            writer: Poller::default(),
            queue: SendQueue::default(),
            flow: Flow::new(limits::WRITE_HIGH_WATER),
        }
    }
}

impl Payload for WritePipe {
    const NAME: &'static CStr = c"ringloop._native.WritePipeTransport";
    const DOC: &'static CStr = c"The writing end of a pipe; see asyncio.WriteTransport.";
    const DICT: bool = true;
    payload!(WritePipe; define define;
        visit end, peer, writer, flow;
        clear end.base, peer, writer; finalize base::finalize);
}

fn define(type_: &mut Definition<WritePipe>) {
    end::define(type_);
    flow::define(type_);
    members!(type_, WritePipe;
        write(data) => write, "Write data; returns at once.";
        write_eof() => write_eof, "Close the pipe once everything is written.";
        can_write_eof() => |_this| true, "Return True.";
        _start_polling(waiter) => start, "Watch for the other end to be closed, after connection_made.";
        _write_ready() => |this| end::run(this, Role::Write), "Write what is queued.";
    );
    type_.repr(repr_slot!(WritePipe, repr));
}

fn write(this: WritePipe_<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    if !ffi::is_bytes_like(data) {
        return Err(PyAssertionError::raise_with(&data.repr()?));
    }
    if this.base().is_elsewhere() {
        return thread::hand_over_bytes(this, &[ffi::take_over(data)?]);
    }
    if !data.is_truthy()? || dropped(this)? {
        return Ok(());
    }
    match ffi::take_over(data) {
        Ok(buf) => enqueue(this, buf),
        // asyncio detects that in os.write(), which ends the transport.
        Err(error) if this.size() == 0 => failed(this, error),
        Err(error) => Err(error),
    }
}

fn write_eof(this: WritePipe_<'_, '_>) -> PyResult<()> {
    let name = intern!(this.py(), "write_eof");
    thread::in_loop(this, name, Change::Closing, end_writing)
}

fn repr<'py>(this: WritePipe_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let size = format!(" bufsize={}", this.size());
    end::repr(this, this.writer.is_polling(), &size)
}

impl Writable for WritePipe {
    fn flow(&self) -> &Flow {
        &self.flow
    }

    fn size(&self) -> usize {
        self.queue.size()
    }
}

impl Pipe for WritePipe {
    fn end(&self) -> &End {
        &self.end
    }

    fn poller(&self, role: Role) -> Option<&Poller> {
        Some(match role {
            Role::Read => &self.peer,
            Role::Write => &self.writer,
        })
    }

    fn ready(this: WritePipe_<'_, '_>, role: Role) -> PyResult<()> {
        match role {
            Role::Read => peer_closed(this),
            Role::Write => end::or_end(this, write_ready(this)),
        }
    }

    fn close(this: WritePipe_<'_, '_>) -> PyResult<()> {
        end_writing(this)
    }

    fn discard(&self) {
        self.queue.clear();
    }
}

/// Watches for the other end to be closed; scheduled right after `connection_made`.
fn start(this: WritePipe_<'_, '_>, waiter: Argument<'_, '_>) -> PyResult<()> {
    if this.end.base.is_closing() {
        return base::wake(&waiter);
    }
    end::begin(this, waiter)
}

/// Writes now, or after what is blocked.
fn enqueue(this: WritePipe_<'_, '_>, buf: SendBuf) -> PyResult<()> {
    this.queue.push(std::iter::once(buf))?;
    if !this.writer.is_polling() {
        write_queue(this)?;
    }
    flow::maybe_pause(this, this.size())
}

/// Writes until everything is written or the kernel has no room; then polls for room.
fn write_queue(this: WritePipe_<'_, '_>) -> PyResult<()> {
    let End { fd, keeps_messages, .. } = this.end;
    let before = this.queue.size();
    let written = this.queue.send(
        keeps_messages,
        |bytes| file::write(fd, bytes, None),
        |slices| file::write_vectored(fd, slices),
    );
    this.end.base.owner.sent(before - this.queue.size());
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => end::start(this, Role::Write),
        Err(error) => failed(this, error::from_io(&error)),
    }
}

/// There is room again.
fn write_ready(this: WritePipe_<'_, '_>) -> PyResult<()> {
    write_queue(this)?;
    if this.size() > 0 || !this.writer.is_polling() {
        return Ok(());
    }
    end::stop(this, Role::Write)?;
    // The protocol may write more here, and its exception may leave the loop: no poll would return
    // for the end.
    let told = flow::maybe_resume(this, 0);
    let is_done = this.end.base.state.get() == State::Closing && this.size() == 0;
    let ended = if is_done {
        let none: Obj = this.py().None().into_bound(this.py()).into();
        connection_lost(this, &none)
    } else {
        Ok(())
    };
    told.and(ended)
}

/// `write_eof` and `close`: closes the pipe once everything is written.
fn end_writing(this: WritePipe_<'_, '_>) -> PyResult<()> {
    if this.end.base.is_closing() {
        return Ok(());
    }
    if this.size() == 0 {
        return end::lose(this, None);
    }
    this.end.base.state.set(State::Closing);
    Ok(())
}

/// The other end was closed.
fn peer_closed(this: WritePipe_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let logged = log_debug(this, "info", "%r was closed by peer");
    let error = if this.size() > 0 {
        let error = PyBrokenPipeError::raise_bare().into_value(py);
        Some(error.into_bound(py).into_any().into())
    } else {
        None
    };
    logged.and(WritePipe::force_close(this, error))
}

/// A write failed: the transport ends.
fn failed(this: WritePipe_<'_, '_>, error: PyErr) -> PyResult<()> {
    this.discard();
    this.end.base.lost_writes.count();
    write_failed(this, error)
}

/// Drops writes after the end; asyncio logs the fifth and later ones.
fn dropped(this: WritePipe_<'_, '_>) -> PyResult<bool> {
    let base = &this.end.base;
    if base.lost_writes.get() == 0 && !base.is_closing() {
        return Ok(false);
    }
    let text = "pipe closed by peer or os.write(pipe, data) raised exception.";
    base.lost_writes.drop_write(&this.object(), text).map(|()| true)
}
