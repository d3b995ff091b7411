//! TLS over any transport: the state machine between a transport and the application's protocol.
//!
//! Owns: one TLS connection, as two objects. [`TlsProtocol`] is the protocol of the lower
//! transport, and holds everything; [`TlsTransport`] is the application's transport. Called by: the
//! lower transport, user code, the loop (`_make_ssl_transport`, `start_tls` in `ringloop/_tls.py`).
//! Cryptography is in `engine`.
//!
//! | file        | contents                                                                |
//! |-------------|-------------------------------------------------------------------------|
//! | `state`     | the states and their legal transitions                                  |
//! | `create`    | creation of a connection                                                |
//! | `protocol`  | the Python surface towards the lower transport                          |
//! | `transport` | the Python surface towards the application                              |
//! | `handshake` | from `connection_made` to the application's `connection_made`           |
//! | `incoming`  | from ciphertext to `data_received`                                      |
//! | `outgoing`  | from `write` to the lower transport                                     |
//! | `shutdown`  | closing, in every way                                                   |
//! | `lower`     | the lower transport: our own, or any with asyncio's methods             |
//! | `engine`    | the `ssl.SSLObject`, by its methods or by libssl                        |
//!
//! Byte path in: `transport::read` → [`incoming`] → `protocol.data_received`, without a Python call
//! or object per record if the lower transport is ours and the engine is direct.
//! Byte path out: `transport.write` → [`outgoing`] → `transport::write`.
//!
//! The behaviour matches `asyncio.sslproto` callback by callback.

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

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use ringloop::buf::SendBuf;

use crate::event_loop::LoopCore;
use crate::ffi::{ObjCell, Payload, Raise as _, This, Visited, Visitor, intern, payload};
use crate::transport::base::LostWrites;
use crate::transport::flow::Flow;
use crate::transport::thread::{Owned, Owner};
use engine::Engine;
use state::{AppState, Receiver, State};

/// One TLS connection.
pub struct TlsProtocol {
    owner: Owner,
    engine: Engine,
    state: Cell<State>,
    app_state: Cell<AppState>,
    /// The lower transport; empty before `connection_made` and after `connection_lost`.
    lower: ObjCell,
    /// The application's protocol, until `connection_lost`.
    app: ObjCell,
    receiver: Cell<Receiver>,
    /// The application's transport, until `connection_lost`.
    app_transport: ObjCell,
    /// A future to resolve after the handshake.
    waiter: ObjCell,
    /// Additional results of `get_extra_info`.
    extra: ObjCell,
    timing: Timing,
    incoming: Incoming,
    outgoing: Outgoing,
}

/// The timeouts, as the application gave them, and their timers.
#[derive(Default)]
struct Timing {
    handshake_timeout: ObjCell,
    shutdown_timeout: ObjCell,
    handshake_timer: ObjCell,
    shutdown_timer: ObjCell,
    /// Start of the handshake; in debug mode.
    handshake_start: Cell<Option<f64>>,
}

impl Timing {
    fn cells(&self) -> [&ObjCell; 4] {
        let Self { handshake_timeout, shutdown_timeout, handshake_timer, shutdown_timer, .. } =
            self;
        [handshake_timeout, shutdown_timeout, handshake_timer, shutdown_timer]
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.cells().iter().try_for_each(|cell| cell.visit(visitor))
    }

    fn clear(&self) {
        self.cells().iter().for_each(|cell| cell.clear());
    }
}

/// The reading side.
struct Incoming {
    /// Buffer for transports that are not ours; created on request.
    buffer: ObjCell,
    /// The lower transport has sent EOF.
    eof: Cell<bool>,
    /// The application has paused delivery.
    app_paused: Cell<bool>,
    /// Of the lower transport's reading.
    flow: Flow,
}

/// The writing side.
struct Outgoing {
    /// Plaintext not yet encrypted.
    backlog: RefCell<VecDeque<SendBuf>>,
    backlog_bytes: Cell<usize>,
    /// The lower transport is full.
    lower_paused: Cell<bool>,
    /// Of the application's protocol.
    flow: Flow,
    lost_writes: LostWrites,
}

/// The application's transport.
pub struct TlsTransport {
    owner: Owner,
    /// Empty after a second `close()`, so that a kept transport keeps no `SSLContext` alive.
    protocol: ObjCell,
    closed: Cell<bool>,
}

/// The receivers of the functions of this module.
type Tls<'a, 'py> = This<'a, 'py, TlsProtocol>;
type Transport<'a, 'py> = This<'a, 'py, TlsTransport>;

impl Payload for TlsProtocol {
    const NAME: &'static CStr = c"ringloop._native.TlsProtocol";
    const DOC: &'static CStr = c"TLS between a transport and a protocol.";
    // The loop stays: a cleared connection that is still reachable behaves like a closed one.
    payload!(TlsProtocol; define protocol::define;
        visit lower, app, app_transport, waiter, extra, timing, incoming.buffer, owner, incoming.flow,
            outgoing.flow, engine;
        clear lower, app, app_transport, waiter, extra, timing, incoming.buffer, engine);
}

impl Payload for TlsTransport {
    const NAME: &'static CStr = c"ringloop._native.SSLProtocolTransport";
    const DOC: &'static CStr = c"A transport over TLS; see asyncio.Transport.";
    const DICT: bool = true;
    payload!(TlsTransport; define transport::define;
        visit owner, protocol;
        clear protocol; finalize transport::finalize);
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
    fn core<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, LoopCore>> {
        self.owner.core(py)
    }

    /// Changes the state; fails for an illegal transition.
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

/// Whether an error is an `Exception`: others (`KeyboardInterrupt`, `CancelledError`) are passed on
/// to the lower transport.
fn is_exception(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
}

/// Creates the types.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let buffered =
        py.import(intern!(py, "asyncio.protocols"))?.getattr(intern!(py, "BufferedProtocol"))?;
    let base =
        py.import(intern!(py, "asyncio.transports"))?.getattr(intern!(py, "_FlowControlMixin"))?;
    module.add("TlsProtocol", TlsProtocol::native().create(py, buffered.cast()?)?)?;
    module.add("SSLProtocolTransport", TlsTransport::native().create(py, base.cast()?)?)?;
    module.add_function(wrap_pyfunction!(engine::tls_engine, module)?)?;
    module.add_function(wrap_pyfunction!(create::make_tls_protocol, module)?)
}
