//! The reading end: from "readable" to `data_received`.
//!
//! Owns: the poll for reading, and the size of the next read. Called by: `end`, and user
//! code. Holds no bytes; while reading is paused the kernel keeps them.

use ringloop::embed::sys::libc;
use std::cell::Cell;
use std::ffi::CStr;
use std::io;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use super::end::{self, End, Pipe, Poller, Role};
use crate::error;
use crate::ffi::{
    self, Argument, Definition, Obj, Payload, This, intern, members, payload, repr_slot,
};
use crate::limits;
use crate::transport::base::{self, Readable, State, call_protocol, fatal_error_as, log_debug};

/// A pipe being read.
pub struct ReadPipe {
    end: End,
    reader: Poller,
    paused: Cell<bool>,
    /// Size of the next read(2).
    chunk_len: Cell<usize>,
}

/// The receiver of the functions of this module.
type ReadPipe_<'a, 'py> = This<'a, 'py, ReadPipe>;

const FATAL: &str = "Fatal read error on pipe transport";

impl ReadPipe {
    pub(super) fn new(end: End) -> Self {
        // A message is read whole or truncated to asyncio's maximum.
        let chunk_len =
            if end.keeps_messages { limits::READ_CHUNK_MAX } else { limits::READ_CHUNK_MIN };
        Self {
            end,
            reader: Poller::default(),
            paused: Cell::new(false),
            chunk_len: Cell::new(chunk_len),
        }
    }
}

impl Payload for ReadPipe {
    const NAME: &'static CStr = c"ringloop._native.ReadPipeTransport";
    const DOC: &'static CStr = c"The reading end of a pipe; see asyncio.ReadTransport.";
    const DICT: bool = true;
    payload!(ReadPipe; define define;
        visit end, reader;
        clear end.base, reader; finalize base::finalize);
}

fn define(type_: &mut Definition<ReadPipe>) {
    end::define(type_);
    base::define_reading(type_);
    members!(type_, ReadPipe;
        _start_polling(waiter) => start, "Begin to read, after connection_made.";
    );
    type_.repr(repr_slot!(ReadPipe, repr));
}

fn repr<'py>(this: ReadPipe_<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    end::repr(this, this.reader.is_polling(), "")
}

impl Readable for ReadPipe {
    fn is_paused(&self) -> bool {
        self.paused.get()
    }

    fn pause(this: ReadPipe_<'_, '_>) -> PyResult<bool> {
        if this.paused.replace(true) {
            return Ok(false);
        }
        end::stop(this, Role::Read).map(|()| true)
    }

    fn resume(this: ReadPipe_<'_, '_>) -> PyResult<bool> {
        if !this.paused.replace(false) {
            return Ok(false);
        }
        if let Err(error) = end::start(this, Role::Read) {
            this.paused.set(true);
            return Err(error);
        }
        Ok(true)
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

    fn close(this: ReadPipe_<'_, '_>) -> PyResult<()> {
        end::lose(this, None)
    }
}

/// Starts reading; scheduled right after `connection_made`.
fn start(this: ReadPipe_<'_, '_>, waiter: Argument<'_, '_>) -> PyResult<()> {
    if this.paused.get() || this.end.base.is_closing() {
        return base::wake(&waiter);
    }
    end::begin(this, waiter)
}

/// Reads once, or a few times while reads are full.
fn ready(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    for _ in 0..limits::READS_PER_EVENT {
        let asked = this.chunk_len.get();
        let bytes = match ffi::read_bytes(this.py(), this.end.fd, asked) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => return failed(this, &error),
            Err(error) => return fatal_error_as(this, error, FATAL, false),
        };
        let len = ffi::bytes_len(&bytes);
        if len == 0 {
            return ended(this);
        }
        this.end.base.owner.received(len);
        adapt(this, asked, len);
        deliver(this, &bytes)?;
        if len < asked || !this.reader.is_polling() {
            return Ok(());
        }
    }
    Ok(())
}

/// Adapts the size: more after a full read, less after a small one.
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

/// As in asyncio, an exception of the protocol is reported by the loop and does not end the
/// transport. Without memory for the call, the protocol may not have seen the bytes.
fn deliver(this: ReadPipe_<'_, '_>, bytes: &Obj) -> PyResult<()> {
    let py = this.py();
    match call_protocol(this, intern!(py, "data_received"), Some(bytes)) {
        Err(error) if error.is_instance_of::<PyMemoryError>(py) => {
            fatal_error_as(this, error, FATAL, false)
        }
        told => told.map(drop),
    }
}

/// The other end is closed and everything was read.
fn ended(this: ReadPipe_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let logged = log_debug(this, "info", "%r was closed by peer");
    this.end.base.state.set(State::Closing);
    end::stop(this, Role::Read)?;
    if let Some(protocol) = this.end.base.protocol.get(py) {
        let (object, context) = (protocol.bind(py).as_borrowed(), ffi::context_copy_current(py));
        let core = this.end.base.core(py)?;
        core.get().call_method_soon(object, intern!(py, "eof_received"), None, context)?;
    }
    logged.and(end::lose(this, None))
}

fn failed(this: ReadPipe_<'_, '_>, error: &io::Error) -> PyResult<()> {
    if error::is_blocked(error) {
        return Ok(());
    }
    // A terminal without its other side returns EIO.
    let is_everyday = error.raw_os_error() == Some(libc::EIO);
    fatal_error_as(this, error::from_io(error), FATAL, is_everyday)
}
