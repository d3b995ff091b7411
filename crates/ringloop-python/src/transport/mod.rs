//! The stream transport: a connected socket and its protocol.
//!
//! Owns: the state of one connection, in four parts that know only their own fields: [`read`],
//! [`write`], [`flow`] and [`lifecycle`]. Called by: the turn (completions, flush), user code
//! ([`methods`]), servers ([`listener`]). Never does: wait; every operation is the engine's.
//!
//! Byte path in: `event_loop::dispatch` → [`read`] → `protocol.data_received`.
//! Byte path out: `transport.write` → [`write`] → one send a turn, submitted by the enter that waits.
//!
//! The behaviour is `asyncio.selector_events._SelectorSocketTransport`'s, to the letter.

pub(crate) mod create;
pub(crate) mod flow;
pub(crate) mod gather;
pub(crate) mod lifecycle;
mod listener;
pub(crate) mod marks;
pub(crate) mod methods;
pub(crate) mod native;
mod read;
mod sendfile;
mod socket_file;
pub(crate) mod thread;
pub(crate) mod write;

pub(crate) use marks::{Marks, high_and_low};
pub(crate) use methods::one;

use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::prelude::*;
use ringloop::embed::{Driver, Event, Kind, Sink, Token};

use crate::event_loop::{Behaviour, Flush, Handler, LoopCore, handlers};
use crate::ffi::{
    self, Definition, Native, Obj, ObjCell, Payload, SocketCell, This, Visited, Visitor, intern,
};

use listener::Listener;

/// One connection.
pub struct Stream {
    /// The loop; cleared only by the collector and after the connection is lost.
    loop_: ObjCell,
    /// Which thread runs the loop; zero for none.
    running_thread: Arc<AtomicU64>,
    /// Its place among the loop's handlers, which keep the transport alive while operations are in
    /// flight or bytes may still come.
    token: Cell<Token>,
    /// It has that place. Not so while it rests: see [`lifecycle::rest_if_idle`].
    registered: Cell<bool>,
    /// Which driver the loop has; it never changes.
    kind: Kind,
    /// The socket is no stream: each send is a message, and each receive takes one.
    keeps_messages: bool,
    /// The `socket.socket`; gone once it is closed.
    socket: SocketCell,
    protocol: ObjCell,
    server: ObjCell,
    /// What protocol callbacks run in: a copy made when the connection was.
    context: ObjCell,
    /// Set while a file is sent past the write queue.
    empty_waiter: ObjCell,
    lifecycle: lifecycle::Lifecycle,
    read: read::ReadSide,
    write: write::WriteSide,
    gathering: gather::Gathering,
    flow: flow::Flow,
}

/// What an operation of a stream was for; it travels in the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Bytes, or the news that there are some.
    Read,
    /// A send ended.
    Write,
    /// The socket takes bytes again.
    Writable,
}

/// The receiver of the functions of this module.
type Stream_<'a, 'py> = This<'a, 'py, Stream>;

impl Payload for Stream {
    const NAME: &'static CStr = c"ringloop._native.SocketTransport";
    const DOC: &'static CStr = c"A stream transport; see asyncio.Transport.";
    const DICT: bool = true;
    const FINALIZER: bool = true;

    fn native() -> &'static Native<Self> {
        static TYPE: Native<Stream> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        methods::define(type_);
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.loop_.visit(visitor)?;
        self.socket.visit(visitor)?;
        self.protocol.visit(visitor)?;
        self.server.visit(visitor)?;
        self.context.visit(visitor)?;
        self.empty_waiter.visit(visitor)?;
        self.flow.visit(visitor)
    }

    fn clear(&self) {
        // The loop and the socket stay: the finaliser has run, and a cleared transport that is still
        // reachable answers like a closed one.
        drop((
            self.protocol.take(),
            self.server.take(),
            self.context.take(),
            self.empty_waiter.take(),
        ));
    }

    fn finalize(this: Stream_<'_, '_>) {
        lifecycle::finalize(this);
    }
}

/// What the loop does with a stream.
static STREAM: Behaviour = Behaviour {
    completed: |_, object, event| {
        Stream::native().get(object).map_or(Ok(()), |this| {
            this.lifecycle
                .called_by_loop(|| lifecycle::or_end(this, completed(this, event)))
        })
    },
    flush: |object, why| {
        Stream::native()
            .get(object)
            .map_or(Ok(()), |this| match why {
                Flush::TurnEnds => this.lifecycle.called_by_loop(|| {
                    let settled = read::settle_pause(this);
                    lifecycle::or_end(this, settled.and(write::flush(this)))
                }),
                Flush::Now => write::send_gathered(this),
            })
    },
    abandoned: |object| {
        if let Some(this) = Stream::native().get(object) {
            lifecycle::abandoned(this);
        }
    },
};

/// A transport, as the loop's handlers keep it.
fn handler(transport: Obj) -> Handler {
    Handler {
        object: transport,
        behaviour: &STREAM,
    }
}

/// One completion of a stream's operation.
#[inline]
fn completed(this: Stream_<'_, '_>, event: Event) -> PyResult<()> {
    match handlers::role(event.token) {
        role if role == Role::Read as u8 => read::completed(this, event),
        role if role == Role::Write as u8 => write::completed(this, event),
        _ => write::writable(this, event),
    }
}

impl Stream {
    /// Open the loop's driver for a moment.
    fn driver<R>(&self, py: Python<'_>, body: impl FnOnce(&mut Driver) -> R) -> PyResult<R> {
        self.core(py)?.get().engine.driver(body)
    }

    fn core<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, LoopCore>> {
        let loop_ = self.loop_.get_or_none(py);
        Ok(loop_.cast_into::<LoopCore>()?)
    }

    /// The socket's descriptor, for a system call or an operation; -1 once the user has closed it.
    #[inline]
    fn fd(&self, py: Python<'_>) -> RawFd {
        self.socket.fd(py)
    }

    /// Whether the loop runs.
    #[inline]
    fn is_running(&self) -> bool {
        self.running_thread.load(Relaxed) != 0
    }

    /// Whether the loop runs, and in another thread.
    #[inline]
    fn is_elsewhere(&self) -> bool {
        let running = self.running_thread.load(Relaxed);
        running != 0 && running != ffi::thread_id()
    }

    fn sink(&self, role: Role) -> Sink {
        Sink::Handler(handlers::with_role(self.token.get(), role as u8))
    }

    /// Whether a completion of this stream's operations has yet to be taken.
    fn in_flight(&self) -> bool {
        self.read.armed() || self.write.armed()
    }

    /// Whether the kernel is done with all of them.
    fn has_ended(&self, py: Python<'_>) -> PyResult<bool> {
        let core = self.core(py)?;
        for key in [self.read.key(), self.write.key()].into_iter().flatten() {
            if !core.get().engine.has_ended(key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What streams, datagram endpoints and pipes have in common, for the code that serves both.
pub(crate) trait Endpoint: Payload {
    /// The loop.
    fn loop_(&self) -> &ObjCell;
    /// The protocol; empty once the connection is lost.
    fn protocol(&self) -> &ObjCell;
    /// What protocol callbacks run in; empty once the connection is lost. `None`: they run in the
    /// caller's, which is the right one.
    fn context(&self) -> Option<&ObjCell>;
}

/// An endpoint that is written to.
pub(crate) trait Writable: Endpoint {
    /// Flow control of the writing side.
    fn flow(&self) -> &flow::Flow;
}

impl Endpoint for Stream {
    fn loop_(&self) -> &ObjCell {
        &self.loop_
    }

    fn protocol(&self) -> &ObjCell {
        &self.protocol
    }

    fn context(&self) -> Option<&ObjCell> {
        Some(&self.context)
    }
}

impl Writable for Stream {
    fn flow(&self) -> &flow::Flow {
        &self.flow
    }
}

/// Call a method of the protocol in the connection's context. `None`: it is gone.
fn call_protocol<T: Endpoint>(
    this: This<'_, '_, T>,
    method: &Bound<'_, pyo3::types::PyString>,
    argument: Option<&Obj>,
) -> PyResult<Option<Obj>> {
    with_protocol(this, |protocol| tell(this, protocol, method, argument))
}

/// Call a method of a protocol that `this` serves, in the context that is running. Other threads may
/// come to `this` meanwhile.
pub(crate) fn tell<T: Payload>(
    this: This<'_, '_, T>,
    protocol: &Obj,
    method: &Bound<'_, pyo3::types::PyString>,
    argument: Option<&Obj>,
) -> PyResult<Obj> {
    let py = this.py();
    ffi::released(&this.object(), || match argument {
        Some(argument) => ffi::call_method(py, method, &[protocol, argument]),
        None => ffi::call_method(py, method, &[protocol]),
    })
}

/// Run `body` with the protocol, in the connection's context. `None`: it is gone.
pub(crate) fn with_protocol<T: Endpoint, R>(
    this: This<'_, '_, T>,
    body: impl FnOnce(&Obj) -> PyResult<R>,
) -> PyResult<Option<R>> {
    let py = this.py();
    let Some(protocol) = this.protocol().get(py) else {
        return Ok(None);
    };
    let Some(context) = this.context() else {
        return ffi::released(&this.object(), || body(&protocol)).map(Some);
    };
    let Some(context) = context.get(py) else {
        return Ok(None);
    };
    ffi::context_enter(py, &context)?;
    let result = ffi::released(&this.object(), || body(&protocol));
    ffi::context_exit(py, &context)?;
    result.map(Some)
}

/// Whether an exception must leave the loop instead of ending a connection.
pub(crate) fn leaves_the_loop(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<pyo3::exceptions::PySystemExit>(py)
        || error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py)
}

/// Make the types.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    lifecycle::warn_function(py)?;
    // Of asyncio's transports this is the base too, and `loop.sendfile` insists on it.
    let base = py
        .import(intern!(py, "asyncio.transports"))?
        .getattr(intern!(py, "_FlowControlMixin"))?;
    let stream = Stream::native().create(py, base.cast()?)?;
    let listener = Listener::native().create(py, &py.get_type::<PyAny>())?;
    module.add("SocketTransport", stream)?;
    module.add("Listener", listener)?;
    module.add_function(wrap_pyfunction!(make_socket_transport, module)?)?;
    module.add_function(wrap_pyfunction!(socket_file::remove_socket_file, module)?)?;
    module.add_function(wrap_pyfunction!(make_listener, module)?)
}

/// Make a transport of a connected socket; `connection_made` is scheduled. `is_own` says that the loop has made the
/// socket.
#[pyfunction]
#[pyo3(signature = (loop_, sock, protocol, waiter, extra, server, is_own))]
// The arguments of asyncio's own, and one.
#[allow(clippy::too_many_arguments)]
fn make_socket_transport<'py>(
    loop_: &Bound<'py, LoopCore>,
    sock: &Bound<'py, PyAny>,
    protocol: &Bound<'py, PyAny>,
    waiter: Option<&Bound<'py, PyAny>>,
    extra: Option<&Bound<'py, pyo3::types::PyDict>>,
    server: Option<&Bound<'py, PyAny>>,
    is_own: bool,
) -> PyResult<Bound<'py, PyAny>> {
    create::create(&create::Parts {
        loop_,
        socket: sock,
        protocol,
        waiter,
        extra,
        server,
        is_own,
    })
}

/// Make a listener; it accepts after `start()`. With `accepted`, sockets go there instead of to a
/// protocol of the factory.
#[pyfunction]
fn make_listener<'py>(
    loop_: &Bound<'py, LoopCore>,
    sock: &Bound<'py, PyAny>,
    factory: &Bound<'py, PyAny>,
    server: &Bound<'py, PyAny>,
    accepted: &Bound<'py, PyAny>,
    backlog: usize,
) -> PyResult<Bound<'py, PyAny>> {
    listener::new_listener(loop_, sock, factory, server, accepted, backlog)
}
