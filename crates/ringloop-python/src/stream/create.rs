//! Creation of a stream transport: from a connected socket to `connection_made`.
//!
//! Called by: the loop's `_make_socket_transport` (client side, TLS), and `listener`. Connecting and accepting happen elsewhere.
//!
//! Source: `_SelectorTransport.__init__` and `_SelectorSocketTransport.__init__`.

use std::cell::Cell;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use ringloop::embed::sys;
use ringloop::embed::sys::libc;

use super::state::{ReadSide, Receiver, Stream, Stream_, WriteSide};
use crate::event_loop::LoopCore;
use crate::ffi::{self, Obj, ObjCell, SocketCell, intern};
use crate::limits;
use crate::transport::base::{self, Base};
use crate::transport::flow::Flow;
use crate::transport::gather::Gathering;
use crate::transport::reader;
use crate::transport::socket::{self, LoopSocket};

/// Make a transport of a connected, non-blocking socket; `connection_made` is scheduled. `is_own`
/// says that the loop has made the socket, and no other code refers to it.
#[pyfunction]
#[pyo3(signature = (loop_, sock, protocol, waiter, extra, server, is_own))]
// asyncio's arguments, and one more.
#[allow(clippy::too_many_arguments)]
pub(super) fn make_socket_transport<'py>(
    loop_: &Bound<'py, LoopCore>,
    sock: &Bound<'py, PyAny>,
    protocol: &Bound<'py, PyAny>,
    waiter: Option<&Bound<'py, PyAny>>,
    extra: Option<&Bound<'py, PyDict>>,
    server: Option<&Bound<'py, PyAny>>,
    is_own: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let origin = Origin { waiter, extra, server, is_own, shape: None };
    make(loop_, sock, protocol, origin)
}

/// What is known of a socket without asking the kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub family: i32,
    pub kind: i32,
    pub proto: i32,
}

/// Where a socket comes from.
pub(super) struct Origin<'a, 'py> {
    pub waiter: Option<&'a Bound<'py, PyAny>>,
    pub extra: Option<&'a Bound<'py, PyDict>>,
    pub server: Option<&'a Bound<'py, PyAny>>,
    pub is_own: bool,
    pub shape: Option<Shape>,
}

/// As [`make_socket_transport`].
pub(super) fn make<'py>(
    loop_: &Bound<'py, LoopCore>,
    sock: &Bound<'py, PyAny>,
    protocol: &Bound<'py, PyAny>,
    origin: Origin<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let Origin { waiter, extra, server, is_own, shape } = origin;
    let py = loop_.py();
    let socket = SocketCell::new(sock)?;
    let fd = socket.original_fd();
    let core = loop_.get();
    let kind = core.engine.kind()?;
    let gathers = is_own && !core.writes_eagerly();
    let keeps_messages = match shape {
        Some(shape) => shape.kind != libc::SOCK_STREAM,
        None => sys::socket::is_stream(fd).is_ok_and(|is_stream| !is_stream),
    };
    let stream = Stream {
        base: Base::new(loop_, None, Some(ffi::context_copy_current(py)?)),
        socket: LoopSocket::new(socket, Gathering::new(gathers, limits::OPENING_TURNS)),
        kind,
        keeps_messages,
        server: ObjCell::new(None),
        empty_waiter: ObjCell::new(None),
        called_by_loop: Cell::new(false),
        read: ReadSide::new(kind, keeps_messages),
        write: WriteSide::default(),
        flow: Flow::new(limits::WRITE_HIGH_WATER),
    };
    let extra = socket::extra(sock, extra, fd)?;
    let transport = socket::instantiate(stream, sock, &extra, gathers)?;
    let this = socket::new_one::<Stream>(&transport)?;
    set_protocol(this, protocol)?;
    // Nagle's algorithm only delays what the loop has already gathered; not every family supports
    // the option.
    if shape.is_none_or(|shape| shape.family != libc::AF_UNIX) {
        drop(sys::socket::set_nodelay(fd, true));
    }
    if let Some(server) = server {
        call_server(server, intern!(py, "_attach"), &transport)?;
        drop(this.server.replace(Some(server.clone().into())));
    }
    socket::begin(this, loop_, protocol, waiter, context_for(this)?)?;
    Ok(transport)
}

/// Context for scheduling a connection's callbacks: from 3.15 on the connection's own, shared by
/// all of them; before, a copy of the caller's.
pub(super) fn context_for(this: Stream_<'_, '_>) -> PyResult<Obj> {
    let own = cfg!(Py_3_15).then(|| this.base.context.get(this.py())).flatten();
    own.map_or_else(|| ffi::context_copy_current(this.py()), Ok)
}

/// Sets the protocol, and determines how it receives bytes.
pub(super) fn set_protocol(this: Stream_<'_, '_>, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
    this.read.receiver.set(match reader::of(protocol) {
        Some(functions) => Receiver::Reader(functions),
        None if base::is_buffered(protocol)? => Receiver::Buffered,
        None => Receiver::Data,
    });
    drop(this.base.protocol.replace(Some(protocol.clone().into())));
    Ok(())
}

/// Calls `Server._attach` or `_detach`, which take the transport since 3.12.1 / 3.13 (`close_clients`).
pub(super) fn call_server(
    server: &Bound<'_, PyAny>,
    method: &Bound<'_, PyString>,
    transport: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let called = if server_takes_transport(server)? {
        server.call_method1(method, (transport,))
    } else {
        server.call_method0(method)
    };
    called.map(drop)
}

/// Whether this CPython's server tracks its transports (patch releases from 3.12.1 on differ, so
/// the class is inspected, once).
fn server_takes_transport(server: &Bound<'_, PyAny>) -> PyResult<bool> {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    if let Some(answer) = ANSWER.get() {
        return Ok(*answer);
    }
    let answer = server.hasattr(intern!(server.py(), "close_clients"))?;
    Ok(*ANSWER.get_or_init(|| answer))
}
