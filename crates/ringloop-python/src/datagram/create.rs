//! How an endpoint begins: from a bound or connected socket to `connection_made`.
//!
//! Called by: the loop's `_make_datagram_transport`, which `create_datagram_endpoint` calls. Never
//! does: bind, connect or resolve.
//!
//! Source: `_SelectorTransport.__init__` and `_SelectorDatagramTransport.__init__`.

use std::cell::{Cell, RefCell};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringloop::embed::Token;
use ringloop::embed::sys;

use super::Datagram;
use super::address::Seen;
use super::lifecycle::Lifecycle;
use super::read::ReadSide;
use super::write::WriteSide;
use crate::error;
use crate::event_loop::{Handler, LoopCore};
use crate::ffi::{self, ObjCell, Payload, Raise as _, SocketCell, intern};
use crate::transport::create;
use crate::transport::flow::Flow;
use crate::transport::gather::Gathering;

/// Where the versions of asyncio differ.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Bytes that a queued datagram counts besides its own.
    pub header_len: usize,
    /// An empty datagram is sent; else `sendto(b"")` does nothing.
    pub sends_empty: bool,
}

impl Rules {
    /// Both came with 3.13 ("Changed in version 3.13" of `DatagramTransport.sendto`).
    fn of_this_python(py: Python<'_>) -> Self {
        let is_new = py.version_info() >= (3, 13);
        Self {
            header_len: if is_new { 8 } else { 0 },
            sends_empty: is_new,
        }
    }
}

/// Make a transport of a datagram socket; `connection_made` is scheduled. `is_own` says that the loop has
/// made the socket, so that its options are nobody else's.
#[pyfunction]
#[pyo3(signature = (loop_, sock, protocol, address, waiter, extra, is_own))]
// The arguments of asyncio's own, and one.
#[allow(clippy::too_many_arguments)]
pub(super) fn make_datagram_transport<'py>(
    loop_: &Bound<'py, LoopCore>,
    sock: &Bound<'py, PyAny>,
    protocol: &Bound<'py, PyAny>,
    address: Option<&Bound<'py, PyAny>>,
    waiter: Option<&Bound<'py, PyAny>>,
    extra: Option<&Bound<'py, PyDict>>,
    is_own: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = loop_.py();
    let socket = SocketCell::new(sock)?;
    let fd = socket.original_fd();
    let family = sys::socket::family(fd).map_err(|error| error::from_io(&error))?;
    let is_udp = sys::socket::is_udp(fd).map_err(|error| error::from_io(&error))?;
    // Others of the Internet's families ignore `UDP_SEGMENT`, and would send a run of datagrams as one packet.
    let may_gather = is_udp && is_own && !loop_.get().writes_eagerly();
    let extra = create::extra(sock, extra, fd, false)?;
    let peer = extra.get_item(intern!(py, "peername"))?;
    let connected = peer.is_some_and(|peer| peer.is_truthy().unwrap_or(false));
    let address = match address {
        Some(address) if address.is_truthy()? => Some(address.clone().into()),
        _ => None,
    };
    let endpoint = Datagram {
        loop_: ObjCell::new(Some(loop_.clone().into())),
        running_thread: loop_.get().running_thread(),
        family,
        token: Cell::new(Token(0)),
        registered: Cell::new(true),
        socket,
        protocol: ObjCell::new(Some(protocol.clone().into())),
        context: ObjCell::new(Some(ffi::context_copy_current(py)?)),
        address: ObjCell::new(address),
        connected,
        rules: Rules::of_this_python(py),
        lifecycle: Lifecycle::new(),
        read: ReadSide::new(is_udp && is_own),
        write: WriteSide::new(is_udp),
        gathering: Gathering::new(may_gather, 0),
        flow: Flow::new(),
        seen: RefCell::new(Seen::default()),
    };
    let transport = Datagram::native().instantiate(py, endpoint)?;
    create::show_socket(&extra, &transport, sock, may_gather)?;
    transport.setattr(intern!(py, "_extra"), extra)?;
    let Some(this) = Datagram::native().get(&transport) else {
        return Err(pyo3::exceptions::PySystemError::raise(
            "a new transport has another type",
        ));
    };
    let handler = Handler {
        object: transport.clone().into(),
        behaviour: &super::DATAGRAM,
    };
    this.token.set(loop_.get().add_transport(handler, fd)?);
    let context = ffi::context_copy_current(py)?;
    let scheduled = create::schedule(loop_, protocol, &transport, waiter, context);
    if let Err(error) = scheduled {
        // Of a protocol without `connection_made` nobody will hear: nothing holds on to the transport.
        loop_.get().release_handler(this.token.get(), fd)?;
        return Err(error);
    }
    Ok(transport)
}
