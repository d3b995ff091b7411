//! The state of a TLS connection, towards the peer and towards the application's protocol.
//!
//! ```text
//!  Unwrapped ──connection_made──▶ DoHandshake ──▶ Wrapped ──close(), EOF, close_notify──▶ Flushing ─┐
//!   ▲                                                                                              │
//!   └── connection_lost, abort, failed handshake: from every state ◀── Shutdown ◀──────────────────┘
//!
//!  Init ──connection_made──▶ Made ──eof_received──▶ Eof ──connection_lost──▶ Lost
//!                              └───────────────────connection_lost───────────▲
//! ```
//! The names are asyncio's (`SSLProtocolState`, `AppProtocolState`), because an error message shows
//! them.
//!
//! Owns: the types. Called by: the other files of this folder.

use std::cell::Cell;

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::engine::Engine;
use crate::event_loop::LoopCore;
use crate::ffi::{self, Obj, ObjCell, Raise as _, This, Visited, Visitor, intern};
use crate::stream::NativeReceiver;
use crate::transport::base::LostWrites;
use crate::transport::flow::Flow;
use crate::transport::queue::SendQueue;
use crate::transport::reader::ReaderFunctions;
use crate::transport::thread::{Owned, Owner};

/// One TLS connection.
pub struct TlsProtocol {
    pub(super) owner: Owner,
    pub(super) engine: Engine,
    pub(super) state: Cell<State>,
    pub(super) app_state: Cell<AppState>,
    /// The lower transport; empty before `connection_made` and after `connection_lost`.
    pub(super) lower: ObjCell,
    /// The application's protocol, until `connection_lost`.
    pub(super) app: ObjCell,
    pub(super) receiver: Cell<Receiver>,
    /// The application's transport, until `connection_lost`.
    pub(super) app_transport: ObjCell,
    /// A future to resolve after the handshake.
    pub(super) waiter: ObjCell,
    /// Additional results of `get_extra_info`.
    pub(super) extra: ObjCell,
    pub(super) timing: Timing,
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
}

/// The timeouts, as the application gave them, and their timers.
#[derive(Default)]
pub(super) struct Timing {
    pub(super) handshake_timeout: ObjCell,
    pub(super) shutdown_timeout: ObjCell,
    pub(super) handshake_timer: ObjCell,
    pub(super) shutdown_timer: ObjCell,
    /// Start of the handshake; in debug mode.
    pub(super) handshake_start: Cell<Option<f64>>,
}

impl Timing {
    fn cells(&self) -> [&ObjCell; 4] {
        let Self { handshake_timeout, shutdown_timeout, handshake_timer, shutdown_timer, .. } =
            self;
        [handshake_timeout, shutdown_timeout, handshake_timer, shutdown_timer]
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.cells().iter().try_for_each(|cell| cell.visit(visitor))
    }

    pub fn clear(&self) {
        self.cells().iter().for_each(|cell| cell.clear());
    }
}

/// The reading side.
pub(super) struct Incoming {
    /// Buffer for transports that are not ours; created on request.
    pub(super) buffer: ObjCell,
    /// The lower transport has sent EOF.
    pub(super) eof: Cell<bool>,
    /// The application has paused delivery.
    pub(super) app_paused: Cell<bool>,
    /// The handshake's waiter was woken and has not run yet: it may be about to tell the protocol of
    /// its new transport, by which that pauses and resumes (`StreamWriter.start_tls`).
    pub(super) waiter_is_next: Cell<bool>,
    /// Of the lower transport's reading.
    pub(super) flow: Flow,
}

impl Incoming {
    /// Nothing may be delivered now; `shutdown::resumed` goes on.
    pub(super) fn is_paused(&self) -> bool {
        self.app_paused.get() || self.waiter_is_next.get()
    }
}

/// The writing side.
pub(super) struct Outgoing {
    /// Plaintext not yet encrypted.
    pub(super) backlog: SendQueue,
    /// The lower transport is full.
    pub(super) lower_paused: Cell<bool>,
    /// Of the application's protocol.
    pub(super) flow: Flow,
    pub(super) lost_writes: LostWrites,
}

/// The application's transport.
pub struct TlsTransport {
    pub(super) owner: Owner,
    /// Empty after a second `close()`, so that a kept transport keeps no `SSLContext` alive.
    pub(super) protocol: ObjCell,
    pub(super) closed: Cell<bool>,
}

/// The receivers of the functions of this module.
pub(super) type Tls<'a, 'py> = This<'a, 'py, TlsProtocol>;
pub(super) type Transport<'a, 'py> = This<'a, 'py, TlsTransport>;

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
    pub(super) fn core<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, LoopCore>> {
        self.owner.core(py)
    }

    /// Changes the state; fails for an illegal transition.
    pub(super) fn set_state(&self, next: State) -> PyResult<()> {
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
pub(super) fn is_exception(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
}

/// Towards the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No handshake has started, or the connection has ended.
    Unwrapped,
    DoHandshake,
    /// Data may be sent and received.
    Wrapped,
    /// The peer's data is still delivered before `close_notify` is sent.
    Flushing,
    /// `close_notify` was sent; the peer's is awaited.
    Shutdown,
}

impl State {
    /// Whether `next` may follow.
    pub fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (_, Self::Unwrapped)
                | (Self::Unwrapped, Self::DoHandshake)
                | (Self::DoHandshake, Self::Wrapped)
                | (Self::Wrapped, Self::Flushing)
                | (Self::Flushing, Self::Shutdown)
        )
    }

    /// Whether the application's bytes are dropped.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Flushing | Self::Shutdown | Self::Unwrapped)
    }

    /// asyncio's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unwrapped => "SSLProtocolState.UNWRAPPED",
            Self::DoHandshake => "SSLProtocolState.DO_HANDSHAKE",
            Self::Wrapped => "SSLProtocolState.WRAPPED",
            Self::Flushing => "SSLProtocolState.FLUSHING",
            Self::Shutdown => "SSLProtocolState.SHUTDOWN",
        }
    }
}

/// Towards the application's protocol: which of its methods were called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppState {
    Init,
    Made,
    Eof,
    Lost,
}

/// How the application's protocol receives bytes.
#[derive(Clone, Copy)]
pub(super) enum Receiver {
    /// `data_received`.
    Data,
    /// `get_buffer` and `buffer_updated`.
    Buffered,
    /// One of our own (TLS over TLS): takes them without a Python method call.
    Native(&'static NativeReceiver),
    /// The protocol of native streams.
    Reader(&'static ReaderFunctions),
}

/// Schedules one of our methods.
pub(super) fn call_later(
    this: Tls<'_, '_>,
    seconds: &ObjCell,
    method: &Bound<'_, PyString>,
) -> PyResult<Obj> {
    let py = this.py();
    let callback = this.object().getattr(method)?;
    let arguments = (seconds.get_or_none(py), callback);
    this.owner.loop_(py).call_method1(intern!(py, "call_later"), arguments).map(Obj::from)
}

/// Cancels a timer that is still running.
pub(super) fn cancel(py: Python<'_>, timer: &ObjCell) -> PyResult<()> {
    match timer.take() {
        Some(timer) => ffi::call_method(py, intern!(py, "cancel"), &[&timer]).map(drop),
        None => Ok(()),
    }
}
