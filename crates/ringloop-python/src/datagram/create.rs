//! Creation of an endpoint: from a bound or connected socket to `connection_made`.
//!
//! Called by: the loop's `_make_datagram_transport`, which `create_datagram_endpoint` calls with a
//! bound or connected socket.
//!
//! Source: `_SelectorTransport.__init__` and `_SelectorDatagramTransport.__init__`.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringloop::embed::sys;

use super::state::{Datagram, ReadSide, Rules, Seen, WriteSide};
use crate::error;
use crate::event_loop::LoopCore;
use crate::ffi::{self, ObjCell, SocketCell, intern};
use crate::limits;
use crate::transport::base::Base;
use crate::transport::flow::Flow;
use crate::transport::gather::Gathering;
use crate::transport::socket::{self, LoopSocket};

/// Make a transport of a datagram socket; `connection_made` is scheduled. `is_own` says that the
/// loop has made the socket, so that no other code sets its options.
#[pyfunction]
#[pyo3(signature = (loop_, sock, protocol, address, waiter, extra, is_own))]
// asyncio's arguments, and one more.
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
    // Other Internet sockets ignore `UDP_SEGMENT`, and would send a GSO batch as one packet.
    let may_gather = is_udp && is_own && !loop_.get().writes_eagerly();
    let extra = socket::extra(sock, extra, fd)?;
    let peer = extra.get_item(intern!(py, "peername"))?;
    let connected = peer.is_some_and(|peer| peer.is_truthy().unwrap_or(false));
    let address = match address {
        Some(address) if address.is_truthy()? => Some(address.clone().into()),
        _ => None,
    };
    let endpoint = Datagram {
        base: Base::new(loop_, Some(protocol), Some(ffi::context_copy_current(py)?)),
        socket: LoopSocket::new(socket, Gathering::new(may_gather, 0)),
        family,
        address: ObjCell::new(address),
        connected,
        rules: Rules::of_this_python(py),
        read: ReadSide::new(is_udp && is_own),
        write: WriteSide::new(is_udp),
        flow: Flow::new(limits::WRITE_HIGH_WATER),
        seen: RefCell::new(Seen::default()),
    };
    let transport = socket::instantiate(endpoint, sock, &extra, may_gather)?;
    let this = socket::new_one::<Datagram>(&transport)?;
    let context = ffi::context_copy_current(py)?;
    socket::begin(this, loop_, protocol, waiter, context)?;
    Ok(transport)
}
