//! The stream transport: a connected socket and its protocol.
//!
//! Owns: the state of one connection, in parts that access only their own fields: [`read`] and
//! [`write`] are specific to streams; [`base`], [`socket`], [`flow`] and [`thread`] are shared with
//! datagram endpoints and pipes. Called by: the turn (completions, flush), user code ([`methods`]),
//! servers ([`listener`]). All waiting is done by the engine.
//!
//! Byte path in: `event_loop::dispatch` → [`read`] → `protocol.data_received`.
//! Byte path out: `transport.write` → [`write`] → one send per turn, submitted by the enter that
//! waits.
//!
//! The behaviour matches `asyncio.selector_events._SelectorSocketTransport` exactly.

pub(crate) mod base;
pub(crate) mod create;
pub(crate) mod flow;
pub(crate) mod gather;
mod lifecycle;
mod listener;
pub(crate) mod marks;
mod methods;
pub(crate) mod native;
mod read;
pub(crate) mod sendfile;
pub(crate) mod socket;
pub(crate) mod thread;
pub(crate) mod write;

use std::cell::Cell;
use std::ffi::CStr;

use pyo3::prelude::*;
use ringloop::embed::{Event, Kind};

use crate::event_loop::{Completes, Flush, handlers};
use crate::ffi::{ObjCell, Payload, This, intern, payload};

use base::{Base, fatal_error};
use listener::Listener;
use socket::LoopSocket;

/// One connection.
pub struct Stream {
    base: Base,
    socket: LoopSocket,
    /// The loop's driver; it never changes.
    kind: Kind,
    /// Not a stream socket: each send is a message, and each receive takes one.
    keeps_messages: bool,
    server: ObjCell,
    /// Set while a file is sent outside the write queue.
    empty_waiter: ObjCell,
    /// The loop, not user code, is calling into the connection.
    called_by_loop: Cell<bool>,
    read: read::ReadSide,
    write: write::WriteSide,
    flow: flow::Flow,
}

/// Purpose of a stream's operation; stored in the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Received bytes, or readiness.
    Read,
    /// A send ended.
    Write,
    /// The socket is writable again.
    Writable,
}

/// The receiver of the functions of this module.
type Stream_<'a, 'py> = This<'a, 'py, Stream>;

impl Payload for Stream {
    const NAME: &'static CStr = c"ringloop._native.SocketTransport";
    const DOC: &'static CStr = c"A stream transport; see asyncio.Transport.";
    const DICT: bool = true;
    payload!(Stream; define methods::define;
        visit base, socket, server, empty_waiter, flow;
        clear base, server, empty_waiter; finalize base::finalize);
}

impl Completes for Stream {
    #[inline]
    fn completed(this: Stream_<'_, '_>, event: Event) -> PyResult<()> {
        this.called_by_loop(|| {
            let done = match handlers::role(event.token) {
                role if role == Role::Read as u8 => read::completed(this, event),
                role if role == Role::Write as u8 => write::completed(this, event),
                _ => write::writable(this, event),
            };
            or_end(this, done)
        })
    }

    fn flush(this: Stream_<'_, '_>, why: Flush) -> PyResult<()> {
        match why {
            Flush::TurnEnds => this.called_by_loop(|| {
                let settled = read::settle_pause(this);
                or_end(this, settled.and(write::flush(this)))
            }),
            Flush::Now => write::send_gathered(this),
        }
    }

    fn abandoned(this: Stream_<'_, '_>) {
        this.read.forget();
        // A child's copy of the queue belongs to the parent.
        if let Ok(core) = this.base.core(this.py())
            && !core.get().engine.is_of_another_process()
        {
            write::send_last(this);
        }
        this.write.forget();
        socket::abandoned(this);
    }
}

impl Stream {
    /// Runs the loop's work for the connection: if it ends the connection, that happens in the
    /// connection's context, as for a callback of asyncio's selector.
    #[inline]
    fn called_by_loop<R>(&self, body: impl FnOnce() -> R) -> R {
        self.called_by_loop.set(true);
        let result = body();
        self.called_by_loop.set(false);
        result
    }
}

fn or_end(this: Stream_<'_, '_>, done: PyResult<()>) -> PyResult<()> {
    base::or_end(this, done, "Fatal error on socket transport")
}

/// Bytes taken from the kernel, or given to the protocol, cannot be put back: the connection ends.
fn read_failed(this: Stream_<'_, '_>, error: PyErr) -> PyResult<()> {
    fatal_error(this, error, "Fatal read error on socket transport")
}

pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    base::warn_function(py)?;
    // asyncio's transports have this base too, and `loop.sendfile` requires it.
    let base =
        py.import(intern!(py, "asyncio.transports"))?.getattr(intern!(py, "_FlowControlMixin"))?;
    let stream = Stream::native().create(py, base.cast()?)?;
    let listener = Listener::native().create(py, &py.get_type::<PyAny>())?;
    module.add("SocketTransport", stream)?;
    module.add("Listener", listener)?;
    module.add_function(wrap_pyfunction!(create::make_socket_transport, module)?)?;
    module.add_function(wrap_pyfunction!(listener::remove_socket_file, module)?)?;
    module.add_function(wrap_pyfunction!(listener::make_listener, module)?)
}
