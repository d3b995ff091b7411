//! The pipe transports: one end of a pipe, a socket or a character device, and its protocol.
//!
//! Owns: the common state of both ends, in [`End`], and their types: [`read`] for the reading end,
//! [`write`] for the writing end. [`poll`] reports readiness, [`lifecycle`] ends them, flow control
//! is the stream transport's. Called by: the turn (completions), user code ([`methods`]). On both
//! drivers the engine polls the descriptor and the system call is made here: a ring does not wait
//! on non-blocking descriptors, which these must be.
//!
//! Byte path in: `event_loop::dispatch` → [`poll`] → [`read`] → read(2) → `protocol.data_received`.
//! Byte path out: `transport.write` → [`write`] → write(2), or the queue → writev(2).
//!
//! The behaviour matches `asyncio.unix_events._UnixReadPipeTransport` and `_UnixWritePipeTransport`
//! exactly.

mod create;
mod lifecycle;
mod methods;
mod poll;
mod read;
mod write;

use std::os::fd::RawFd;

use pyo3::prelude::*;
use ringloop::embed::sys::file::FileKind;

use crate::ffi::{self, Native, ObjCell, Payload, This, Visited, Visitor, intern};
use crate::transport::base::Base;

use poll::{Poller, Role};
use read::ReadPipe;
use write::WritePipe;

/// Common state of both ends.
struct End {
    base: Base,
    /// The file object; empty once closed.
    pipe: ObjCell,
    fd: RawFd,
    kind: FileKind,
    /// Whether each write is a message, and each read takes one; determined at creation.
    keeps_messages: bool,
}

impl End {
    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.base.visit(visitor)?;
        self.pipe.visit(visitor)
    }
}

/// A pipe transport of either direction.
trait Pipe: Payload {
    fn end(&self) -> &End;
    /// The poll of one direction, if this end has it.
    fn poller(&self, role: Role) -> Option<&Poller>;
    /// Handles the result of a poll.
    fn ready(this: This<'_, '_, Self>, role: Role) -> PyResult<()>;
    /// Closes once everything queued is written.
    fn close(this: This<'_, '_, Self>) -> PyResult<()>;
    /// Drops what is queued.
    fn discard(&self) {}
}

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
    module.add_function(wrap_pyfunction!(create::make_read_pipe_transport, module)?)?;
    module.add_function(wrap_pyfunction!(create::make_write_pipe_transport, module)?)
}

fn add<T: Payload>(
    module: &Bound<'_, PyModule>,
    native: &'static Native<T>,
    base: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let class = native.create(module.py(), base.cast()?)?;
    module.add(class.name()?.to_string().as_str(), class)
}
