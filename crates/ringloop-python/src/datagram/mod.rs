//! The datagram transport: a UDP or Unix datagram socket and its protocol.
//!
//! Owns: the state of one endpoint, in parts that know only their own fields: [`read`], [`write`] and
//! [`lifecycle`]; flow control is the stream transport's. Called by: the turn (completions), user code
//! ([`methods`]). Never does: wait; readiness is the engine's to tell.
//!
//! Byte path in: `event_loop::dispatch` → [`read`] → recvmmsg(2) → `protocol.datagram_received`.
//! Byte path out: `transport.sendto` → [`write`] → sendto(2) at once, or the queue → sendmmsg(2).
//!
//! The behaviour is `asyncio.selector_events._SelectorDatagramTransport`'s, with two things that a
//! blocking call on another socket could notice: trains ([`read`]) and gathering ([`write`]).

pub(crate) mod address;
mod create;
mod lifecycle;
mod methods;
mod read;
mod write;

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::prelude::*;
use pyo3::types::PyType;
use ringloop::embed::op::{Poll, Request};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::{Driver, Event, Key, Sink, Token};

use crate::event_loop::{Behaviour, Flush, Handler, LoopCore, handlers};
use crate::ffi::{
    self, Definition, Native, Obj, ObjCell, Payload, SocketCell, This, Visited, Visitor, intern,
};
use crate::transport::flow::Flow;
use crate::transport::gather::Gathering;
use crate::transport::{Endpoint, Writable};

/// One endpoint.
pub struct Datagram {
    /// The loop; cleared only by the collector.
    loop_: ObjCell,
    /// Which thread runs the loop; zero for none.
    running_thread: Arc<AtomicU64>,
    family: i32,
    /// Its place among the loop's handlers, which keep the transport alive.
    token: Cell<Token>,
    /// It has that place. Not so while it rests: see [`lifecycle::rest_if_idle`].
    registered: Cell<bool>,
    /// The `socket.socket`; gone once it is closed.
    socket: SocketCell,
    protocol: ObjCell,
    /// What protocol callbacks run in.
    context: ObjCell,
    /// The `remote_addr` it was made with; empty without one.
    address: ObjCell,
    /// The socket has a peer: datagrams go there, whatever address is given.
    connected: bool,
    /// What this version of asyncio counts for a queued datagram, and whether it sends empty ones.
    rules: create::Rules,
    lifecycle: lifecycle::Lifecycle,
    read: read::ReadSide,
    write: write::WriteSide,
    gathering: Gathering,
    flow: Flow,
    /// The addresses last seen in both forms: most datagrams go where the last one came from.
    seen: RefCell<address::Seen>,
}

/// What a poll of an endpoint is for; it travels in the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Read,
    Write,
}

/// The poll of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    Nothing,
    Polling(Key),
    /// Asked to stop; its last completion has yet to come.
    Stopping(Key),
}

/// The receiver of the functions of this module.
type Datagram_<'a, 'py> = This<'a, 'py, Datagram>;

impl Payload for Datagram {
    const NAME: &'static CStr = c"ringloop._native.DatagramTransport";
    const DOC: &'static CStr = c"A datagram transport; see asyncio.DatagramTransport.";
    const DICT: bool = true;
    const FINALIZER: bool = true;

    fn native() -> &'static Native<Self> {
        static TYPE: Native<Datagram> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        methods::define(type_);
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.loop_.visit(visitor)?;
        self.socket.visit(visitor)?;
        self.protocol.visit(visitor)?;
        self.context.visit(visitor)?;
        self.address.visit(visitor)?;
        self.flow.visit(visitor)
    }

    fn clear(&self) {
        // The loop and the socket stay: the finaliser has run, and a cleared transport that is still
        // reachable answers like a closed one.
        drop((self.protocol.take(), self.context.take()));
    }

    fn finalize(this: Datagram_<'_, '_>) {
        lifecycle::finalize(this);
    }
}

impl Endpoint for Datagram {
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

impl Writable for Datagram {
    fn flow(&self) -> &Flow {
        &self.flow
    }
}

/// What the loop does with an endpoint.
static DATAGRAM: Behaviour = Behaviour {
    completed: |_, object, event| {
        Datagram::native().get(object).map_or(Ok(()), |this| {
            lifecycle::or_end(this, completed(this, &event))
        })
    },
    flush: |object, why| {
        Datagram::native()
            .get(object)
            .map_or(Ok(()), |this| match why {
                Flush::TurnEnds => lifecycle::or_end(this, write::turn_ends(this)),
                Flush::Now => write::send_gathered(this),
            })
    },
    abandoned: |object| {
        if let Some(this) = Datagram::native().get(object) {
            lifecycle::abandoned(this);
        }
    },
};

/// One completion of an endpoint's poll.
fn completed(this: Datagram_<'_, '_>, event: &Event) -> PyResult<()> {
    let completion = &event.completion;
    let is_read = handlers::role(event.token) == Role::Read as u8;
    let armed = if is_read {
        this.read.armed()
    } else {
        this.write.armed()
    };
    if !completion.more {
        armed.set(Armed::Nothing);
    }
    let handled = match completion.result {
        // The socket may be closed by now.
        _ if this.lifecycle.is_over() => Ok(()),
        result if result == -libc::ECANCELED => Ok(()),
        result if result < 0 => lifecycle::poll_failed(this, -result),
        _ if is_read => read::ready(this),
        _ => write::ready(this),
    };
    if completion.more {
        return handled;
    }
    // A stop that was taken back meanwhile.
    let again = if is_read {
        read::arm(this)
    } else {
        write::arm(this)
    };
    let closed = lifecycle::close_socket_if_idle(this);
    let rested = lifecycle::rest_if_idle(this);
    handled.and(again).and(closed).and(rested)
}

/// Poll for one direction until [`Datagram::disarm`].
fn poll(this: Datagram_<'_, '_>, role: Role) -> PyResult<Armed> {
    lifecycle::ensure_registered(this)?;
    this.poll(this.py(), role)
}

/// The transport, as the loop's handlers keep it.
fn handler(this: Datagram_<'_, '_>) -> Handler {
    Handler {
        object: Obj::from_borrowed(this.object()),
        behaviour: &DATAGRAM,
    }
}

impl Datagram {
    /// Open the loop's driver for a moment.
    fn driver<R>(&self, py: Python<'_>, body: impl FnOnce(&mut Driver) -> R) -> PyResult<R> {
        self.core(py)?.get().engine.driver(body)
    }

    fn core<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, LoopCore>> {
        Ok(self.loop_.get_or_none(py).cast_into::<LoopCore>()?)
    }

    /// The socket's descriptor, for a system call or an operation; -1 once the user has closed it.
    #[inline]
    fn fd(&self, py: Python<'_>) -> RawFd {
        self.socket.fd(py)
    }

    /// Whether the loop runs, and in another thread.
    #[inline]
    fn is_elsewhere(&self) -> bool {
        let running = self.running_thread.load(Relaxed);
        running != 0 && running != ffi::thread_id()
    }

    /// Whether a completion of this endpoint's polls has yet to be taken.
    fn in_flight(&self) -> bool {
        self.read.armed().get() != Armed::Nothing || self.write.armed().get() != Armed::Nothing
    }

    /// Whether the kernel is done with all of them.
    fn has_ended(&self, py: Python<'_>) -> PyResult<bool> {
        let core = self.core(py)?;
        for armed in [self.read.armed().get(), self.write.armed().get()] {
            if let Armed::Polling(key) | Armed::Stopping(key) = armed
                && !core.get().engine.has_ended(key)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn poll(&self, py: Python<'_>, role: Role) -> PyResult<Armed> {
        let interest = match role {
            Role::Read => Interest::READ,
            Role::Write => Interest::WRITE,
        };
        let poll = Poll {
            fd: self.fd(py),
            interest,
            level: true,
        };
        let sink = Sink::Handler(handlers::with_role(self.token.get(), role as u8));
        let key = self.driver(py, |driver| driver.submit(Request::Poll(poll), sink))?;
        Ok(Armed::Polling(key))
    }

    fn disarm(&self, py: Python<'_>, armed: &Cell<Armed>) -> PyResult<()> {
        if let Armed::Polling(key) = armed.get() {
            self.driver(py, |driver| driver.cancel(key))?;
            armed.set(Armed::Stopping(key));
        }
        Ok(())
    }
}

/// Make the type.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let transports = py.import(intern!(py, "asyncio.transports"))?;
    // asyncio's own is an instance of both, and CPython's tests look at the first.
    let bases = (
        transports.getattr(intern!(py, "Transport"))?,
        transports.getattr(intern!(py, "DatagramTransport"))?,
    );
    let members = ffi::new_dict(py)?;
    members.set_item(intern!(py, "__slots__"), ())?;
    members.set_item(intern!(py, "__module__"), intern!(py, "ringloop._native"))?;
    let base =
        py.get_type::<PyType>()
            .call1((intern!(py, "DatagramTransportBase"), bases, members))?;
    let class = Datagram::native().create(py, base.cast()?)?;
    module.add("DatagramTransport", class)?;
    module.add_function(wrap_pyfunction!(create::make_datagram_transport, module)?)
}
