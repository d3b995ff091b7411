//! The end that is written to: from `transport.write` to write(2) and writev(2).
//!
//! Owns: the queue of what is to be written, the poll for room, and the poll that tells when the other
//! end is closed. Called by: `methods` (write, close), [`super::poll`].
//! Never does: decide what an error means for the transport.
//!
//! * Nothing is gathered: the program has the descriptor, which it may write to itself, and the process at the other end
//!   of a pipe, which it may signal or wait for. What is written before either has left by then.
//! * Where the other end gets messages, each write is a system call of its own and a message, also behind one that
//!   the kernel had no room for. (asyncio joins those.)
//! * Exact `bytes` are kept by reference; every other buffer is copied, because its owner may change it.
//! * A write end that becomes readable has lost its reader: poll(2) answers an error for a pipe.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;

use pyo3::exceptions::{PyBrokenPipeError, PyOSError};
use pyo3::prelude::*;
use ringloop::buf::SendBuf;
use ringloop::embed::sys::file;

use super::lifecycle::{self, State};
use super::poll::{self, Poller, Role};
use super::{End, Pipe, methods};
use crate::error;
use crate::event_loop::Behaviour;
use crate::ffi::{
    self, Definition, Native, Obj, ObjCell, Payload, Raise as _, This, Visited, Visitor, intern,
};
use crate::limits;
use crate::transport::flow::{self, Flow};
use crate::transport::write as shared;
use crate::transport::{Endpoint, Writable};

/// A pipe that is written to.
pub struct WritePipe {
    pub(super) end: End,
    /// Tells when the other end is closed.
    peer: Poller,
    /// Tells when there is room; polls for as long as the kernel has refused bytes.
    writer: Poller,
    queue: RefCell<VecDeque<SendBuf>>,
    queued_bytes: Cell<usize>,
    /// Writes that failed or came too late: the fifth and later ones are logged.
    pub(super) lost_writes: Cell<u32>,
    flow: Flow,
}

/// The receiver of the functions of this module.
pub(super) type WritePipe_<'a, 'py> = This<'a, 'py, WritePipe>;

static WRITE_PIPE: Behaviour = Behaviour {
    completed: |_, object, event| {
        WritePipe::native()
            .get(object)
            .map_or(Ok(()), |this| poll::completed(this, &event))
    },
    flush: Behaviour::NEVER_FLUSHED,
    abandoned: |object| {
        if let Some(this) = WritePipe::native().get(object) {
            lifecycle::abandoned(this);
            this.discard();
        }
    },
};

impl WritePipe {
    pub(super) fn new(end: End) -> Self {
        Self {
            end,
            peer: Poller::default(),
            writer: Poller::default(),
            queue: RefCell::new(VecDeque::new()),
            queued_bytes: Cell::new(0),
            lost_writes: Cell::new(0),
            flow: Flow::new(),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.queued_bytes.get()
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

    /// Drop `count` written bytes from the front of the queue.
    fn advance(&self, count: usize) {
        self.queued_bytes.set(self.size().saturating_sub(count));
        shared::drop_front(&mut self.queue.borrow_mut(), count);
    }

    fn discard(&self) {
        let queue = self.queue.take();
        self.queued_bytes.set(0);
        drop(queue);
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
    const FINALIZER: bool = true;

    fn native() -> &'static Native<Self> {
        static TYPE: Native<WritePipe> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        methods::define_write(type_);
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.end.visit(visitor)?;
        self.peer.visit(visitor)?;
        self.writer.visit(visitor)?;
        self.flow.visit(visitor)
    }

    fn clear(&self) {
        self.end.clear();
        self.peer.clear();
        self.writer.clear();
    }

    fn finalize(this: WritePipe_<'_, '_>) {
        lifecycle::finalize(this);
    }
}

impl Endpoint for WritePipe {
    fn loop_(&self) -> &ObjCell {
        &self.end.loop_
    }

    fn protocol(&self) -> &ObjCell {
        &self.end.protocol
    }

    fn context(&self) -> Option<&ObjCell> {
        None
    }
}

impl Writable for WritePipe {
    fn flow(&self) -> &Flow {
        &self.flow
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

    fn behaviour() -> &'static Behaviour {
        &WRITE_PIPE
    }
}

/// Watch for the other end to be closed; scheduled right after `connection_made`.
pub(super) fn start(this: WritePipe_<'_, '_>) -> PyResult<()> {
    if this.end.is_closing() {
        return Ok(());
    }
    poll::start(this, Role::Read)
}

/// Write now, or behind what waits for room.
pub(super) fn write(this: WritePipe_<'_, '_>, buf: SendBuf) -> PyResult<()> {
    this.push(buf)?;
    if !this.writer.is_polling() {
        write_queue(this)?;
    }
    flow::maybe_pause(this, this.size())
}

/// Write until everything is gone or the kernel takes no more; then poll for room.
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
    // The protocol may write more here, and what it raises may leave the loop: no poll would come back for the end.
    let told = flow::maybe_resume(this, 0);
    let is_done = this.end.state.get() == State::Closing && this.size() == 0;
    let ended = if is_done {
        let none: Obj = this.py().None().into_bound(this.py()).into();
        lifecycle::connection_lost(this, &none)
    } else {
        Ok(())
    };
    told.and(ended)
}

/// `write_eof` and `close`: the end of the pipe is closed once everything is written.
pub(super) fn write_eof(this: WritePipe_<'_, '_>) -> PyResult<()> {
    if this.end.is_closing() {
        return Ok(());
    }
    if this.size() == 0 {
        return lifecycle::lose(this, None);
    }
    this.end.state.set(State::Closing);
    Ok(())
}

/// Close now; what was not written is dropped.
pub(super) fn abort(this: WritePipe_<'_, '_>, error: Option<Obj>) -> PyResult<()> {
    this.discard();
    lifecycle::lose(this, error)
}

/// The other end was closed.
fn peer_closed(this: WritePipe_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let logged = lifecycle::log_debug(this, "info", "%r was closed by peer");
    let error = if this.size() > 0 {
        let error = PyBrokenPipeError::raise_bare().into_value(py);
        Some(error.into_bound(py).into_any().into())
    } else {
        None
    };
    this.discard();
    logged.and(lifecycle::lose(this, error))
}

/// A write failed: the transport ends.
pub(super) fn failed(this: WritePipe_<'_, '_>, error: PyErr) -> PyResult<()> {
    this.discard();
    this.lost_writes.set(this.lost_writes.get() + 1);
    let is_everyday = error.is_instance_of::<PyOSError>(this.py());
    let message = "Fatal write error on pipe transport";
    lifecycle::fatal_error(this, error, message, is_everyday)
}

/// After the end, writes go nowhere; asyncio logs the fifth and later ones.
pub(super) fn dropped(this: WritePipe_<'_, '_>) -> PyResult<bool> {
    let lost = this.lost_writes.get();
    if lost == 0 && !this.end.is_closing() {
        return Ok(false);
    }
    if lost >= limits::LOST_WRITES_BEFORE_WARNING {
        let text = "pipe closed by peer or os.write(pipe, data) raised exception.";
        let py = this.py();
        let logger = py
            .import(intern!(py, "asyncio.log"))?
            .getattr(intern!(py, "logger"))?;
        logger.call_method1(intern!(py, "warning"), (ffi::new_str(py, text)?,))?;
    }
    this.lost_writes.set(lost + 1);
    Ok(true)
}
