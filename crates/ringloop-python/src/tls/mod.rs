//! TLS over any transport: the state machine that stands between a transport and a user's protocol.
//!
//! Owns: one TLS connection, as two objects. [`TlsProtocol`] is the protocol of the lower transport,
//! and holds everything; [`TlsTransport`] is what the user's protocol gets. Called by: the lower
//! transport, user code, the loop (`_make_ssl_transport`, `start_tls` in `ringloop/_tls.py`).
//! Never does: I/O, or cryptography (`engine`).
//!
//! | file        | what it is                                                              |
//! |-------------|-------------------------------------------------------------------------|
//! | `state`     | the states and their legal changes                                      |
//! | `create`    | how a connection is made                                                |
//! | `protocol`  | the Python surface towards the lower transport                          |
//! | `transport` | the Python surface towards the user                                     |
//! | `handshake` | from `connection_made` to the user's `connection_made`                  |
//! | `incoming`  | from ciphertext to `data_received`                                      |
//! | `outgoing`  | from `write` to the lower transport                                     |
//! | `shutdown`  | every way to the end                                                    |
//! | `lower`     | the lower transport: one of ours, or anything with asyncio's methods    |
//! | `engine`    | the `ssl.SSLObject`, by its methods or by libssl                        |
//!
//! Byte path in: `transport::read` → [`incoming`] → `protocol.data_received`, without a Python call
//! or object a record where the lower transport is ours and the engine is direct.
//! Byte path out: `transport.write` → [`outgoing`] → `transport::write`.
//!
//! The behaviour is `asyncio.sslproto`'s, callback by callback.

mod create;
mod engine;
mod handshake;
mod incoming;
mod lower;
mod outgoing;
mod protocol;
mod shutdown;
mod state;
mod transport;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::CStr;

use pyo3::exceptions::{PyBaseException, PyException, PyRuntimeError};
use pyo3::prelude::*;
use ringloop::buf::SendBuf;

use crate::event_loop::LoopCore;
use crate::event_loop::exceptions::{self, leaves_the_loop};
use crate::ffi::{
    self, Definition, Native, ObjCell, Payload, Raise as _, This, Visited, Visitor, intern,
};
use crate::transport::Marks;
use crate::transport::thread::{Owned, Owner};
use engine::Engine;
use state::{AppState, Receiver, State};

/// One TLS connection.
pub struct TlsProtocol {
    owner: Owner,
    engine: Engine,
    state: Cell<State>,
    app_state: Cell<AppState>,
    /// The transport below; empty before `connection_made` and after `connection_lost`.
    lower: ObjCell,
    /// The user's protocol, until `connection_lost`.
    app: ObjCell,
    receiver: Cell<Receiver>,
    /// The user's transport, until `connection_lost`.
    app_transport: ObjCell,
    /// A future to resolve after the handshake.
    waiter: ObjCell,
    /// What `get_extra_info` knows beside the lower transport.
    extra: ObjCell,
    timing: Timing,
    incoming: Incoming,
    outgoing: Outgoing,
}

/// The time-outs, as the user gave them, and their timers.
#[derive(Default)]
struct Timing {
    handshake_timeout: ObjCell,
    shutdown_timeout: ObjCell,
    handshake_timer: ObjCell,
    shutdown_timer: ObjCell,
    /// When the handshake began; in debug mode.
    handshake_start: Cell<Option<f64>>,
}

/// The reading side.
struct Incoming {
    /// Where a foreign transport writes; made when one asks.
    buffer: ObjCell,
    /// The lower transport has ended its stream.
    eof: Cell<bool>,
    /// The user wants nothing delivered.
    app_paused: Cell<bool>,
    /// The lower transport was told to stop reading.
    lower_paused: Cell<bool>,
    marks: Marks,
}

/// The writing side.
struct Outgoing {
    /// Plaintext that is not encrypted yet.
    backlog: RefCell<VecDeque<SendBuf>>,
    backlog_bytes: Cell<usize>,
    /// The lower transport takes no more.
    lower_paused: Cell<bool>,
    /// The user's protocol was told to stop writing.
    app_paused: Cell<bool>,
    marks: Marks,
    /// 1 once the connection is lost, and one more for each write after the end.
    lost_writes: Cell<u32>,
}

/// What the user's protocol writes to.
pub struct TlsTransport {
    owner: Owner,
    /// Empty after a second `close()`: whoever keeps the transport keeps no `SSLContext` alive then.
    protocol: ObjCell,
    closed: Cell<bool>,
}

/// The receivers of the functions of this module.
type Tls<'a, 'py> = This<'a, 'py, TlsProtocol>;
type Transport<'a, 'py> = This<'a, 'py, TlsTransport>;

impl Payload for TlsProtocol {
    const NAME: &'static CStr = c"ringloop._native.TlsProtocol";
    const DOC: &'static CStr = c"TLS between a transport and a protocol.";

    fn native() -> &'static Native<Self> {
        static TYPE: Native<TlsProtocol> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        protocol::define(type_);
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        for cell in self.cells() {
            cell.visit(visitor)?;
        }
        self.owner.visit(visitor)?;
        self.incoming.marks.visit(visitor)?;
        self.outgoing.marks.visit(visitor)?;
        self.engine.visit(visitor)
    }

    fn clear(&self) {
        // The loop stays: what is cleared and still reachable answers like a closed connection.
        for cell in self.cells() {
            drop(cell.take());
        }
        self.engine.clear();
    }
}

impl Payload for TlsTransport {
    const NAME: &'static CStr = c"ringloop._native.SSLProtocolTransport";
    const DOC: &'static CStr = c"A transport over TLS; see asyncio.Transport.";
    const DICT: bool = true;
    const FINALIZER: bool = true;

    fn native() -> &'static Native<Self> {
        static TYPE: Native<TlsTransport> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        transport::define(type_);
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.owner.visit(visitor)?;
        self.protocol.visit(visitor)
    }

    fn clear(&self) {
        drop(self.protocol.take());
    }

    fn finalize(this: Transport<'_, '_>) {
        transport::finalize(this);
    }
}

impl Owned for TlsProtocol {
    fn owner(&self) -> &Owner {
        &self.owner
    }
}

impl Owned for TlsTransport {
    fn owner(&self) -> &Owner {
        &self.owner
    }
}

impl TlsProtocol {
    /// Every cell that only the garbage collector may find in a cycle, except for the loop's.
    fn cells(&self) -> [&ObjCell; 10] {
        [
            &self.lower,
            &self.app,
            &self.app_transport,
            &self.waiter,
            &self.extra,
            &self.timing.handshake_timeout,
            &self.timing.shutdown_timeout,
            &self.timing.handshake_timer,
            &self.timing.shutdown_timer,
            &self.incoming.buffer,
        ]
    }

    fn core<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, LoopCore>> {
        self.owner.core(py)
    }

    /// Change the state, or say that this must not be.
    fn set_state(&self, next: State) -> PyResult<()> {
        let state = self.state.get();
        if !state.may_become(next) {
            return Err(PyRuntimeError::raise(format!(
                "cannot switch state from {} to {}",
                state.name(),
                next.name()
            )));
        }
        self.state.set(next);
        Ok(())
    }
}

/// Log in debug mode; `%r` in the text is this protocol.
fn log_debug(this: Tls<'_, '_>, text: &str) -> PyResult<()> {
    let py = this.py();
    if !this.core(py)?.get().debug() {
        return Ok(());
    }
    let text = ffi::new_str(py, text)?;
    exceptions::log(intern!(py, "debug"), (text, this.object()), None)
}

/// Log a warning of asyncio's.
fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    exceptions::log(intern!(py, "warning"), (ffi::new_str(py, text)?,), None)
}

/// Tell the loop's exception handler of a protocol's mistake that does not end the connection.
fn report(this: Tls<'_, '_>, error: PyErr, message: &str) -> PyResult<()> {
    let py = this.py();
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let exception = error.into_value(py).into_bound(py);
    let transport = this.app_transport.get_or_none(py);
    call_exception_handler(this, &exception, message, &transport)
}

/// Call the loop's exception handler with this protocol and one of its transports.
fn call_exception_handler(
    this: Tls<'_, '_>,
    exception: &Bound<'_, PyBaseException>,
    message: &str,
    transport: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = this.py();
    let more = [
        (intern!(py, "transport"), transport),
        (intern!(py, "protocol"), &*this.object()),
    ];
    exceptions::report(&this.owner.loop_(py), message, exception, &more)
}

/// Say whether an error is an `Exception`: what is not (`KeyboardInterrupt`, `CancelledError`) goes on
/// to the lower transport.
fn is_exception(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
}

/// Make the types.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let buffered = py
        .import(intern!(py, "asyncio.protocols"))?
        .getattr(intern!(py, "BufferedProtocol"))?;
    let base = py
        .import(intern!(py, "asyncio.transports"))?
        .getattr(intern!(py, "_FlowControlMixin"))?;
    module.add(
        "TlsProtocol",
        TlsProtocol::native().create(py, buffered.cast()?)?,
    )?;
    module.add(
        "SSLProtocolTransport",
        TlsTransport::native().create(py, base.cast()?)?,
    )?;
    module.add_function(wrap_pyfunction!(engine::tls_engine, module)?)?;
    module.add_function(wrap_pyfunction!(create::make_tls_protocol, module)?)
}
