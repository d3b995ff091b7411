//! The datagram transport: a UDP or Unix datagram socket and its protocol.
//!
//! Owns: the state of one endpoint, in parts that access only their own fields: [`read`], [`write`]
//! and [`lifecycle`]; flow control is the stream transport's. Called by: the turn (completions),
//! user code ([`methods`]). The engine reports readiness.
//!
//! Byte path in: `event_loop::dispatch` → [`read`] → recvmmsg(2) → `protocol.datagram_received`.
//! Byte path out: `transport.sendto` → [`write`] → sendto(2) at once, or the queue → sendmmsg(2).
//!
//! The behaviour matches `asyncio.selector_events._SelectorDatagramTransport`, with two differences
//! that a blocking call on another socket could notice: GRO ([`read`]) and gathering ([`write`]).

pub(crate) mod address;
mod create;
mod lifecycle;
mod methods;
mod read;
mod write;

use std::cell::RefCell;
use std::ffi::CStr;

use pyo3::prelude::*;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::{Driver, Event};

use crate::event_loop::{self, Completes, Flush, handlers};
use crate::ffi::{self, ObjCell, Payload, This, intern, payload};
use crate::transport::base::{self, Base};
use crate::transport::flow::Flow;
use crate::transport::socket::{self, Armed, LoopSocket};

/// One endpoint.
pub struct Datagram {
    base: Base,
    socket: LoopSocket,
    family: i32,
    /// The `remote_addr` it was created with, if any.
    address: ObjCell,
    /// The socket is connected: datagrams go to its peer, whatever address is given.
    connected: bool,
    /// This asyncio version's overhead of a queued datagram, and whether it sends empty ones.
    rules: create::Rules,
    read: read::ReadSide,
    write: write::WriteSide,
    flow: Flow,
    /// The last addresses in both forms: most datagrams go where the last one came from.
    seen: RefCell<address::Seen>,
}

/// Purpose of an endpoint's poll; stored in the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Read,
    Write,
}

/// The receiver of the functions of this module.
type Datagram_<'a, 'py> = This<'a, 'py, Datagram>;

impl Payload for Datagram {
    const NAME: &'static CStr = c"ringloop._native.DatagramTransport";
    const DOC: &'static CStr = c"A datagram transport; see asyncio.DatagramTransport.";
    const DICT: bool = true;
    payload!(Datagram; define methods::define;
        visit base, socket, address, flow;
        clear base; finalize base::finalize);
}

impl Completes for Datagram {
    fn completed(this: Datagram_<'_, '_>, event: Event) -> PyResult<()> {
        lifecycle::or_end(this, completed(this, &event))
    }

    fn flush(this: Datagram_<'_, '_>, why: Flush) -> PyResult<()> {
        match why {
            Flush::TurnEnds => lifecycle::or_end(this, write::turn_ends(this)),
            Flush::Now => write::send_gathered(this),
        }
    }

    fn abandoned(this: Datagram_<'_, '_>) {
        this.read.armed().set(Armed::Nothing);
        this.write.armed().set(Armed::Nothing);
        this.write.discard();
        socket::abandoned(this);
    }
}

/// A completion of an endpoint's poll.
fn completed(this: Datagram_<'_, '_>, event: &Event) -> PyResult<()> {
    let completion = &event.completion;
    let is_read = handlers::role(event.token) == Role::Read as u8;
    let armed = if is_read { this.read.armed() } else { this.write.armed() };
    if !completion.more {
        armed.set(Armed::Nothing);
    }
    let handled = match completion.result {
        // The socket may be closed by now.
        _ if this.base.is_over() => Ok(()),
        result if result == -libc::ECANCELED => Ok(()),
        result if result < 0 => lifecycle::poll_failed(this, -result),
        _ if is_read => read::ready(this),
        _ => write::ready(this),
    };
    if completion.more {
        return handled;
    }
    // A stop that was undone meanwhile.
    let again = if is_read { read::arm(this) } else { write::arm(this) };
    let closed = socket::close_if_lost(this);
    let rested = socket::rest_if_idle(this);
    handled.and(again).and(closed).and(rested)
}

/// Polls one direction until disarmed.
fn poll(this: Datagram_<'_, '_>, role: Role) -> PyResult<Armed> {
    socket::ensure_registered(this)?;
    let interest = match role {
        Role::Read => Interest::READ,
        Role::Write => Interest::WRITE,
    };
    let poll = event_loop::poll(this.socket.fd(this.py()), interest);
    let sink = this.socket.sink(role as u8);
    let submit = |driver: &mut Driver| driver.submit(poll, sink);
    Ok(Armed::Running(this.base.driver(this.py(), submit)?))
}

pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let transports = py.import(intern!(py, "asyncio.transports"))?;
    // asyncio's own class is an instance of both, and CPython's tests check the first.
    let bases = [
        transports.getattr(intern!(py, "Transport"))?,
        transports.getattr(intern!(py, "DatagramTransport"))?,
    ];
    let base = ffi::new_base(intern!(py, "DatagramTransportBase"), bases)?;
    let class = Datagram::native().create(py, base.cast()?)?;
    module.add("DatagramTransport", class)?;
    module.add_function(wrap_pyfunction!(create::make_datagram_transport, module)?)
}
