//! The datagram transport: a UDP or Unix datagram socket and its protocol.
//!
//! Owns: the state of one endpoint, in [`state`]; [`read`] and [`write`] work on their parts of it, and
//! what it has in common with other transports is `transport`'s. This file says how the loop and
//! `transport` drive an endpoint. Called by: the turn (completions), user code ([`methods`]). The
//! engine reports readiness.
//!
//! Byte path in: `event_loop::turn` → [`read`] → recvmmsg(2) → `protocol.datagram_received`.
//! Byte path out: `transport.sendto` → [`write`] → sendto(2) at once, or the queue → sendmmsg(2).
//!
//! The behaviour matches `asyncio.selector_events._SelectorDatagramTransport`, with two differences
//! that a blocking call on another socket could notice: GRO ([`read`]) and gathering ([`write`]). A
//! protocol's exception does not end an endpoint: as in asyncio, it goes to the exception handler.

mod create;
mod methods;
mod read;
mod state;
mod write;

use std::ffi::CStr;

use pyo3::prelude::*;
use ringloop::embed::sys::libc;
use ringloop::embed::{Event, Key};

use crate::error;
use crate::event_loop::{Completes, Flush, handlers};
use crate::ffi::{self, Payload, intern, payload};
use crate::transport::base::{self, Endpoint};
use crate::transport::socket::{self, Armed, LoopSocket, SocketTransport};

use state::{Datagram, Datagram_, Role};

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
        base::or_end(this, completed(this, &event))
    }

    fn flush(this: Datagram_<'_, '_>, why: Flush) -> PyResult<()> {
        match why {
            Flush::TurnEnds => base::or_end(this, write::turn_ends(this)),
            Flush::Now => write::send_gathered(this),
        }
    }

    fn abandoned(this: Datagram_<'_, '_>) {
        this.read.armed.set(Armed::Nothing);
        this.write.armed.set(Armed::Nothing);
        this.write.discard();
        socket::abandoned(this);
    }
}

/// A completion of an endpoint's poll.
fn completed(this: Datagram_<'_, '_>, event: &Event) -> PyResult<()> {
    let completion = &event.completion;
    let is_read = handlers::role(event.token) == Role::Read as u8;
    let armed = if is_read { &this.read.armed } else { &this.write.armed };
    if !completion.more {
        armed.set(Armed::Nothing);
    }
    let handled = match completion.result {
        // The socket may be closed by now.
        _ if this.base.is_over() => Ok(()),
        result if result == -libc::ECANCELED => Ok(()),
        // For example, the descriptor was closed under the transport.
        result if result < 0 => base::read_failed(this, error::from_errno(-result)),
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

impl Endpoint for Datagram {
    const KIND: &'static str = "datagram";
    socket::socket_endpoint!();

    fn lost(this: Datagram_<'_, '_>) -> PyResult<()> {
        this.write.discard();
        socket::close_if_lost(this)
    }

    fn close_unclosed(this: Datagram_<'_, '_>) -> PyResult<()> {
        socket::close_unclosed(this)
    }
}

impl SocketTransport for Datagram {
    fn socket(&self) -> &LoopSocket {
        &self.socket
    }

    fn operations(&self) -> [Option<Key>; 2] {
        [self.read.armed.get().key(), self.write.armed.get().key()]
    }

    fn is_idle(&self) -> bool {
        self.read.is_paused() && self.write.is_empty()
    }

    fn start_reading(this: Datagram_<'_, '_>) -> PyResult<()> {
        read::start(this)
    }

    fn stop_reading(this: Datagram_<'_, '_>) -> PyResult<()> {
        read::stop(this)
    }

    fn discard(this: Datagram_<'_, '_>) -> PyResult<()> {
        // asyncio has sent it by now.
        let sent = write::send_gathered(this);
        this.write.discard();
        sent.and(socket::disarm(this, &this.write.armed))
    }

    fn send_gathered(this: Datagram_<'_, '_>) -> PyResult<()> {
        write::send_gathered(this)
    }

    fn before_close(this: Datagram_<'_, '_>) {
        read::end_gro(this);
    }
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
