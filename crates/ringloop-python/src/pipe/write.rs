//! The writing end: from `transport.write` to write(2) and writev(2).
//!
//! Owns: the queue of data to write, the poll for room, and the poll that detects a closed reader.
//! Called by: `methods` (write, close), [`super::poll`]. Errors are handled by `lifecycle`.
//!
//! * Nothing is gathered: the application has the descriptor, to which it may write itself, and may
//!   signal or wait for the process at the other end. What it wrote before must have left by then.
//! * If the other end receives messages, each write is a system call and a message of its own, even
//!   after one that the kernel had no room for. (asyncio joins those.)
//! * Exact `bytes` are kept by reference; every other buffer is copied, because its owner may
//!   change it.
//! * A write end that becomes readable has lost its reader: poll(2) reports an error for a pipe.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;

use pyo3::exceptions::PyBrokenPipeError;
use pyo3::prelude::*;
use ringloop::buf::SendBuf;
use ringloop::embed::sys::file;

use super::poll::{self, Poller, Role};
use super::{End, Pipe, lifecycle, methods};
use crate::error;
use crate::ffi::{self, Obj, Payload, Raise as _, This, payload};
use crate::limits;
use crate::transport::base::{self, Endpoint, State, connection_lost, fatal_error, log_debug};
use crate::transport::flow::{self, Flow, Writable};
use crate::transport::write as shared;

/// A pipe being written.
pub struct WritePipe {
    pub(super) end: End,
    /// Detects that the other end is closed.
    peer: Poller,
    /// Waits for room; polls while the kernel rejects bytes.
    writer: Poller,
    queue: RefCell<VecDeque<SendBuf>>,
    queued_bytes: Cell<usize>,
    flow: Flow,
}

/// The receiver of the functions of this module.
pub(super) type WritePipe_<'a, 'py> = This<'a, 'py, WritePipe>;

impl WritePipe {
    pub(super) fn new(end: End) -> Self {
        Self {
            end,
            peer: Poller::default(),
            writer: Poller::default(),
            queue: RefCell::new(VecDeque::new()),
            queued_bytes: Cell::new(0),
            flow: Flow::new(limits::WRITE_HIGH_WATER),
        }
    }

    pub(super) fn is_polling(&self) -> bool {
        self.writer.is_polling()
    }

    fn push(&self, buf: SendBuf) -> PyResult<()> {
        let mut queue = self.queue.borrow_mut();
        queue.try_reserve(1).map_err(ffi::no_memory)?;
        self.queued_bytes.set(self.size() + buf.len());
        queue.push_back(buf);
        Ok(())
    }

    /// Drops `count` written bytes from the front of the queue.
    fn advance(&self, count: usize) {
        self.queued_bytes.set(self.size().saturating_sub(count));
        shared::drop_front(&mut self.queue.borrow_mut(), count);
    }

    /// One system call for the front of the queue.
    fn write_front(&self) -> io::Result<usize> {
        let queue = self.queue.borrow();
        match queue.len() {
            0 => Ok(0),
            _ if self.end.keeps_messages => file::write(self.end.fd, queue[0].as_slice(), None),
            1 => file::write(self.end.fd, queue[0].as_slice(), None),
            _ => file::write_vectored(self.end.fd, &shared::slices(&queue)),
        }
    }
}

impl Payload for WritePipe {
    const NAME: &'static CStr = c"ringloop._native.WritePipeTransport";
    const DOC: &'static CStr = c"The writing end of a pipe; see asyncio.WriteTransport.";
    const DICT: bool = true;
    payload!(WritePipe; define methods::define_write;
        visit end, peer, writer, flow;
        clear end.base, peer, writer; finalize base::finalize);
}

impl Writable for WritePipe {
    fn flow(&self) -> &Flow {
        &self.flow
    }

    fn size(&self) -> usize {
        self.queued_bytes.get()
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
            Role::Write => lifecycle::or_end(this, write_ready(this)),
        }
    }

    fn close(this: WritePipe_<'_, '_>) -> PyResult<()> {
        write_eof(this)
    }

    fn discard(&self) {
        let queue = self.queue.take();
        self.queued_bytes.set(0);
        drop(queue);
    }
}

/// Watches for the other end to be closed; scheduled right after `connection_made`.
pub(super) fn start(this: WritePipe_<'_, '_>) -> PyResult<()> {
    if this.end.base.is_closing() {
        return Ok(());
    }
    poll::start(this, Role::Read)
}

/// Writes now, or after what is blocked.
pub(super) fn write(this: WritePipe_<'_, '_>, buf: SendBuf) -> PyResult<()> {
    this.push(buf)?;
    if !this.writer.is_polling() {
        write_queue(this)?;
    }
    flow::maybe_pause(this, this.size())
}

/// Writes until everything is written or the kernel has no room; then polls for room.
fn write_queue(this: WritePipe_<'_, '_>) -> PyResult<()> {
    while this.size() > 0 {
        match this.write_front() {
            Ok(count) => this.advance(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return poll::start(this, Role::Write);
            }
            Err(error) => return failed(this, error::from_io(&error)),
        }
    }
    Ok(())
}

/// There is room again.
fn write_ready(this: WritePipe_<'_, '_>) -> PyResult<()> {
    write_queue(this)?;
    if this.size() > 0 || !this.writer.is_polling() {
        return Ok(());
    }
    poll::stop(this, Role::Write)?;
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
pub(super) fn write_eof(this: WritePipe_<'_, '_>) -> PyResult<()> {
    if this.end.base.is_closing() {
        return Ok(());
    }
    if this.size() == 0 {
        return lifecycle::lose(this, None);
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
pub(super) fn failed(this: WritePipe_<'_, '_>, error: PyErr) -> PyResult<()> {
    this.discard();
    this.end.base.lost_writes.count();
    fatal_error(this, error, "Fatal write error on pipe transport")
}

/// Drops writes after the end; asyncio logs the fifth and later ones.
pub(super) fn dropped(this: WritePipe_<'_, '_>) -> PyResult<bool> {
    let base = &this.end.base;
    if base.lost_writes.get() == 0 && !base.is_closing() {
        return Ok(false);
    }
    let text = "pipe closed by peer or os.write(pipe, data) raised exception.";
    base.lost_writes.drop_write(this.py(), text).map(|()| true)
}
