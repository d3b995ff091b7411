//! How a connection begins: from a connected socket to `connection_made`.
//!
//! Called by: the loop's `_make_socket_transport` (client side, TLS) and [`super::listener`].
//! Never does: connect or accept.
//!
//! Source: `_SelectorTransport.__init__` and `_SelectorSocketTransport.__init__`.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use ringloop::embed::Token;
use ringloop::embed::sys;

use super::flow::Flow;
use super::gather::Gathering;
use super::lifecycle::Lifecycle;
use super::read::{ReadSide, Receiver};
use super::write::WriteSide;
use super::{Stream, Stream_};
use crate::datagram::address::to_python as address_to_python;
use crate::event_loop::LoopCore;
use crate::ffi::{self, Obj, ObjCell, Payload, Raise as _, SocketCell, intern};
use crate::limits;

/// What a transport is made of.
pub struct Parts<'a, 'py> {
    /// The loop.
    pub loop_: &'a Bound<'py, LoopCore>,
    /// A connected, non-blocking `socket.socket`.
    pub socket: &'a Bound<'py, PyAny>,
    /// The protocol.
    pub protocol: &'a Bound<'py, PyAny>,
    /// A future to resolve once `connection_made` has run.
    pub waiter: Option<&'a Bound<'py, PyAny>>,
    /// What `get_extra_info` knows besides socket and names.
    pub extra: Option<&'a Bound<'py, PyDict>>,
    /// The server that accepted it.
    pub server: Option<&'a Bound<'py, PyAny>>,
    /// The loop has made the socket, and nobody else has it.
    pub is_own: bool,
}

/// Make a transport and schedule `connection_made`, the first read and the waiter, in this order.
pub fn create<'py>(parts: &Parts<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = parts.loop_.py();
    let socket = SocketCell::new(parts.socket)?;
    let fd = socket.original_fd();
    let core = parts.loop_.get();
    let kind = core.engine.kind()?;
    let may_gather = parts.is_own && !core.writes_eagerly();
    let keeps_messages = sys::socket::is_stream(fd).is_ok_and(|is_stream| !is_stream);
    let stream = Stream {
        loop_: ObjCell::new(Some(parts.loop_.clone().into_any().into())),
        running_thread: core.running_thread(),
        token: Cell::new(Token(0)),
        registered: Cell::new(false),
        kind,
        keeps_messages,
        socket,
        protocol: ObjCell::new(None),
        server: ObjCell::new(None),
        context: ObjCell::new(Some(ffi::context_copy_current(py)?)),
        empty_waiter: ObjCell::new(None),
        lifecycle: Lifecycle::new(),
        read: ReadSide::new(kind, keeps_messages),
        write: WriteSide::new(),
        gathering: Gathering::new(may_gather, limits::OPENING_TURNS),
        flow: Flow::new(),
    };
    let transport = Stream::native().instantiate(py, stream)?;
    let extra = extra(parts.socket, parts.extra, fd, parts.server.is_some())?;
    show_socket(&extra, &transport, parts.socket, may_gather)?;
    transport.setattr(intern!(py, "_extra"), extra)?;
    let Some(this) = Stream::native().get(&transport) else {
        return Err(pyo3::exceptions::PySystemError::raise(
            "a new transport has another type",
        ));
    };
    set_protocol(this, parts.protocol)?;
    // Nagle's algorithm only delays what the loop has gathered already; not every family has it.
    drop(sys::socket::set_nodelay(fd, true));
    if let Some(server) = parts.server {
        attach(server, &transport)?;
        drop(this.server.replace(Some(server.clone().into())));
    }
    this.token
        .set(core.add_transport(super::handler(transport.clone().into()), fd)?);
    this.registered.set(true);
    let context = context_for(this)?;
    let scheduled = schedule(
        parts.loop_,
        parts.protocol,
        &transport,
        parts.waiter,
        context,
    );
    if let Err(error) = scheduled {
        // Of a protocol without `connection_made` nobody will hear: nothing holds on to the transport.
        core.release_handler(this.token.get(), fd)?;
        return Err(error);
    }
    Ok(transport)
}

/// What a callback of a connection is scheduled in: from 3.15 on the connection's own context, the same
/// for all of them, before a copy of the caller's.
pub(super) fn context_for(this: Stream_<'_, '_>) -> PyResult<Obj> {
    let own = cfg!(Py_3_15).then(|| this.context.get(this.py())).flatten();
    own.map_or_else(|| ffi::context_copy_current(this.py()), Ok)
}

/// Schedule `connection_made`, in `context`, `_start_reading` and the waiter.
pub(crate) fn schedule(
    loop_: &Bound<'_, LoopCore>,
    protocol: &Bound<'_, PyAny>,
    transport: &Bound<'_, PyAny>,
    waiter: Option<&Bound<'_, PyAny>>,
    context: Obj,
) -> PyResult<()> {
    static SET_RESULT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = loop_.py();
    let core = loop_.get();
    let made = protocol.getattr(intern!(py, "connection_made"))?;
    core.call_soon_step(made.into(), Some(transport.clone().into()), context)?;
    let start = transport.getattr(intern!(py, "_start_reading"))?;
    let Some(waiter) = waiter else {
        return core.call_soon_step(start.into(), None, ffi::context_copy_current(py)?);
    };
    let set_result = ffi::imported(
        &SET_RESULT,
        intern!(py, "asyncio.futures"),
        intern!(py, "_set_result_unless_cancelled"),
    )?;
    let call_soon = loop_.getattr(intern!(py, "call_soon"))?;
    call_soon.call1((set_result, waiter, py.None()))?;
    // One pass later, behind the task that the waiter wakes: it has its transport before the protocol
    // has bytes, as where a selector only queues what it found.
    call_soon.call1((&call_soon, start))?;
    Ok(())
}

/// The `_extra` dictionary without the socket: names, and what the caller knows. Of an accepted connection asyncio has the peer's
/// name from accept(2), also where the peer has reset it since.
pub(crate) fn extra<'py>(
    socket: &Bound<'py, PyAny>,
    known: Option<&Bound<'py, PyDict>>,
    fd: RawFd,
    is_accepted: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let py = socket.py();
    let extra = match known {
        Some(known) => known.copy()?,
        None => ffi::new_dict(py)?,
    };
    let sockname = intern!(py, "sockname");
    match socket.call_method0(intern!(py, "getsockname")) {
        Ok(name) => extra.set_item(sockname, name)?,
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyOSError>(py) => {
            extra.set_item(sockname, py.None())?;
        }
        Err(error) => return Err(error),
    }
    let peername = intern!(py, "peername");
    if !extra.contains(peername)? {
        let name = match sys::socket::peer_addr(fd) {
            Ok(_) => socket.call_method0(intern!(py, "getpeername")).ok(),
            Err(_) if is_accepted => match sys::socket::last_peer_addr(fd) {
                Ok(address) => Some(address_to_python(py, &address)?.into_bound(py)),
                Err(_) => None,
            },
            Err(_) => None,
        };
        extra.set_item(peername, name)?;
    }
    Ok(extra)
}

/// Put the socket into `extra`, as asyncio wraps it; where the transport gathers what is written, so that it is noticed
/// when the socket is used: see [`super::gather`].
pub(crate) fn show_socket(
    extra: &Bound<'_, PyDict>,
    transport: &Bound<'_, PyAny>,
    socket: &Bound<'_, PyAny>,
    gathers: bool,
) -> PyResult<()> {
    static TRANSPORT_SOCKET: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static SHOWN: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = socket.py();
    let wrapper = ffi::imported(
        &TRANSPORT_SOCKET,
        intern!(py, "asyncio.trsock"),
        intern!(py, "TransportSocket"),
    )?;
    let inside = if gathers {
        let (module, name) = (intern!(py, "ringloop._writes"), intern!(py, "ShownSocket"));
        ffi::imported(&SHOWN, module, name)?.call1((socket, transport))?
    } else {
        socket.clone()
    };
    extra.set_item(intern!(py, "socket"), wrapper.call1((inside,))?)
}

/// Take a protocol, and find out how it wants its bytes.
pub(super) fn set_protocol(this: Stream_<'_, '_>, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
    static BUFFERED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = this.py();
    let buffered = ffi::imported(
        &BUFFERED,
        intern!(py, "asyncio.protocols"),
        intern!(py, "BufferedProtocol"),
    )?;
    this.read.set_receiver(if protocol.is_instance(buffered)? {
        Receiver::Buffered
    } else {
        Receiver::Data
    });
    this.lifecycle.protocol_connected.set(true);
    drop(this.protocol.replace(Some(protocol.clone().into())));
    Ok(())
}

/// `Server._attach` learnt to take the transport together with `close_clients`.
fn attach(server: &Bound<'_, PyAny>, transport: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = server.py();
    let attach = intern!(py, "_attach");
    if server_takes_transport(server)? {
        server.call_method1(attach, (transport,))?;
    } else {
        server.call_method0(attach)?;
    }
    Ok(())
}

/// Whether this CPython's server keeps its transports (3.12.1 and later patch releases differ, so the
/// class is asked, once).
pub(super) fn server_takes_transport(server: &Bound<'_, PyAny>) -> PyResult<bool> {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    if let Some(answer) = ANSWER.get() {
        return Ok(*answer);
    }
    let answer = server.hasattr(intern!(server.py(), "close_clients"))?;
    Ok(*ANSWER.get_or_init(|| answer))
}
