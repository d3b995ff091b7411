//! The end that is read: from "readable" to `data_received`.
//!
//! Owns: the poll for reading, and how much the next read asks for. Called by: [`super::poll`],
//! `methods` (pause, resume). Never does: hold bytes; while reading is paused the kernel keeps them.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use super::lifecycle::{self, State};
use super::poll::{self, Poller, Role};
use super::{End, Pipe, methods};
use crate::error;
use crate::event_loop::Behaviour;
use crate::ffi::{self, Definition, Native, Obj, ObjCell, Payload, This, Visited, Visitor, intern};
use crate::limits;
use crate::transport::{Endpoint, tell};

/// A pipe that is read.
pub struct ReadPipe {
    pub(super) end: End,
    reader: Poller,
    paused: Cell<bool>,
    /// How many bytes the next read(2) asks for.
    chunk_len: Cell<usize>,
}

/// The receiver of the functions of this module.
pub(super) type ReadPipe_<'a, 'py> = This<'a, 'py, ReadPipe>;

const FATAL: &str = "Fatal read error on pipe transport";

static READ_PIPE: Behaviour = Behaviour {
    completed: |_, object, event| {
        ReadPipe::native()
            .get(object)
            .map_or(Ok(()), |this| poll::completed(this, &event))
    },
    flush: Behaviour::NEVER_FLUSHED,
    abandoned: |object| {
        if let Some(this) = ReadPipe::native().get(object) {
            lifecycle::abandoned(this);
        }
    },
};

impl ReadPipe {
    pub(super) fn new(end: End) -> Self {
        // A message is read whole or cut, as long as asyncio's may be.
        let chunk_len = if end.keeps_messages {
            limits::READ_CHUNK_MAX
        } else {
            limits::READ_CHUNK_MIN
        };
        Self {
            end,
            reader: Poller::default(),
            paused: Cell::new(false),
            chunk_len: Cell::new(chunk_len),
        }
    }

    pub(super) fn is_reading(&self) -> bool {
        !self.paused.get() && !self.end.is_closing()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.get()
    }

    pub(super) fn is_polling(&self) -> bool {
        self.reader.is_polling()
    }
}

impl Payload for ReadPipe {
    const NAME: &'static CStr = c"ringloop._native.ReadPipeTransport";
    const DOC: &'static CStr = c"The reading end of a pipe; see asyncio.ReadTransport.";
    const DICT: bool = true;
    const FINALIZER: bool = true;

    fn native() -> &'static Native<Self> {
        static TYPE: Native<ReadPipe> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        methods::define_read(type_);
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.end.visit(visitor)?;
        self.reader.visit(visitor)
    }

    fn clear(&self) {
        self.end.clear();
        self.reader.clear();
    }

    fn finalize(this: ReadPipe_<'_, '_>) {
        lifecycle::finalize(this);
    }
}

impl Endpoint for ReadPipe {
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

impl Pipe for ReadPipe {
    fn end(&self) -> &End {
        &self.end
    }

    fn poller(&self, role: Role) -> Option<&Poller> {
        (role == Role::Read).then_some(&self.reader)
    }

    fn ready(this: ReadPipe_<'_, '_>, _: Role) -> PyResult<()> {
        ready(this)
    }

    fn behaviour() -> &'static Behaviour {
        &READ_PIPE
    }
}

/// Begin to read; scheduled right after `connection_made`.
pub(super) fn start(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    if this.is_reading() {
        poll::start(this, Role::Read)
    } else {
        Ok(())
    }
}

/// Leave what comes in the kernel until [`resume`].
pub(super) fn pause(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    if !this.is_reading() {
        return Ok(());
    }
    this.paused.set(true);
    poll::stop(this, Role::Read)?;
    lifecycle::log_debug(this, "debug", "%r pauses reading")
}

/// Read again.
pub(super) fn resume(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    if this.end.is_closing() || !this.paused.get() {
        return Ok(());
    }
    this.paused.set(false);
    if let Err(error) = poll::start(this, Role::Read) {
        this.paused.set(true);
        return Err(error);
    }
    lifecycle::log_debug(this, "debug", "%r resumes reading")
}

/// Read once, or a few times while every read is full.
fn ready(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    for _ in 0..limits::READS_PER_EVENT {
        let asked = this.chunk_len.get();
        let bytes = match ffi::read_bytes(this.py(), this.end.fd, asked) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => return failed(this, &error),
            Err(error) => return lifecycle::fatal_error(this, error, FATAL, false),
        };
        let len = ffi::bytes_len(&bytes);
        if len == 0 {
            return ended(this);
        }
        adapt(this, asked, len);
        deliver(this, &bytes)?;
        if len < asked || !this.reader.is_polling() {
            return Ok(());
        }
    }
    Ok(())
}

/// Ask for more after a full read, for less after a poor one.
fn adapt(this: ReadPipe_<'_, '_>, asked: usize, len: usize) {
    if this.end.keeps_messages {
        return;
    }
    if len == asked {
        this.chunk_len.set((asked * 2).min(limits::READ_CHUNK_MAX));
    } else if len <= asked / 4 {
        this.chunk_len.set((asked / 2).max(limits::READ_CHUNK_MIN));
    }
}

/// As asyncio: an exception of the protocol's is reported by the loop and does not end the transport. Without memory for
/// the call, the protocol may not have seen the bytes.
fn deliver(this: ReadPipe_<'_, '_>, bytes: &Obj) -> PyResult<()> {
    let py = this.py();
    let Some(protocol) = this.end.protocol.get(py) else {
        return Ok(());
    };
    match tell(this, &protocol, intern!(py, "data_received"), Some(bytes)) {
        Err(error) if error.is_instance_of::<PyMemoryError>(py) => {
            lifecycle::fatal_error(this, error, FATAL, false)
        }
        told => told.map(drop),
    }
}

/// The other end is closed and everything was read.
fn ended(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let logged = lifecycle::log_debug(this, "info", "%r was closed by peer");
    this.end.state.set(State::Closing);
    poll::stop(this, Role::Read)?;
    let protocol = this.end.protocol.get_or_none(py);
    let step = protocol
        .getattr(intern!(py, "eof_received"))
        .and_then(|method| Ok((method.into(), ffi::context_copy_current(py)?)));
    let core = this.end.core(py)?;
    core.get()
        .call_soon_or_owe(step, this.object(), None, tell_end)?;
    logged.and(lifecycle::lose(this, None))
}

/// `eof_received`, where there was no memory to have it called.
fn tell_end(object: &Bound<'_, PyAny>, _: Option<&Obj>) -> PyResult<()> {
    let py = object.py();
    let told = ReadPipe::native().get(object).and_then(|this| {
        let protocol = this.end.protocol.get(py)?;
        Some(tell(this, &protocol, intern!(py, "eof_received"), None))
    });
    told.map_or(Ok(()), |told| told.map(drop))
}

fn failed(this: ReadPipe_<'_, '_>, error: &io::Error) -> PyResult<()> {
    if matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    ) {
        return Ok(());
    }
    // A terminal whose other side is gone says EIO.
    let is_everyday = error.raw_os_error() == Some(libc::EIO);
    lifecycle::fatal_error(this, error::from_io(error), FATAL, is_everyday)
}
