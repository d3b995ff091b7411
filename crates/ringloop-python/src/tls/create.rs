//! Creation of a TLS connection: the protocol, its engine, and the application's transport.
//!
//! Called by: `ringloop/_tls.py`, which has checked the timeouts and created a context if there was
//! none. Source: `SSLProtocol.__init__`.

use std::cell::Cell;

use pyo3::exceptions::PySystemError;
use pyo3::prelude::*;

use super::engine::Engine;
use super::protocol::RECEIVER;
use super::state::{
    AppState, Incoming, Outgoing, Receiver, State, Timing, Tls, TlsProtocol, TlsTransport,
};
use crate::event_loop::LoopCore;
use crate::ffi::{self, ObjCell, Payload, Raise as _, intern};
use crate::limits;
use crate::transport::base::{LostWrites, is_buffered};
use crate::transport::flow::Flow;
use crate::transport::queue::SendQueue;
use crate::transport::reader;
use crate::transport::thread::Owner;

/// Make a protocol that speaks TLS below `protocol`; `app_state_made` says that its
/// `connection_made` has been called already.
#[pyfunction]
#[pyo3(signature = (
    loop_, protocol, sslcontext, waiter, server_side, server_hostname,
    handshake_timeout, shutdown_timeout, call_connection_made,
))]
#[expect(
    clippy::too_many_arguments,
    reason = "one call from Python a connection; keywords would cost more than they say"
)]
pub(super) fn make_tls_protocol<'py>(
    loop_: &Bound<'py, LoopCore>,
    protocol: &Bound<'py, PyAny>,
    sslcontext: &Bound<'py, PyAny>,
    waiter: Option<Bound<'py, PyAny>>,
    server_side: bool,
    server_hostname: Option<Bound<'py, PyAny>>,
    handshake_timeout: Bound<'py, PyAny>,
    shutdown_timeout: Bound<'py, PyAny>,
    call_connection_made: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = loop_.py();
    let extra = ffi::new_dict(py)?;
    extra.set_item(intern!(py, "sslcontext"), sslcontext)?;
    let engine = Engine::new(sslcontext, server_side, server_hostname.as_ref())?;
    let cell = |object: &Bound<'py, PyAny>| ObjCell::new(Some(object.clone().into()));
    let made = TlsProtocol::native().instantiate(
        py,
        TlsProtocol {
            owner: Owner::new(loop_),
            engine,
            state: Cell::new(State::Unwrapped),
            app_state: Cell::new(if call_connection_made {
                AppState::Init
            } else {
                AppState::Made
            }),
            lower: ObjCell::new(None),
            app: ObjCell::new(None),
            receiver: Cell::new(Receiver::Data),
            app_transport: ObjCell::new(None),
            waiter: ObjCell::new(waiter.map(Into::into)),
            extra: cell(extra.as_any()),
            timing: Timing {
                handshake_timeout: cell(&handshake_timeout),
                shutdown_timeout: cell(&shutdown_timeout),
                ..Timing::default()
            },
            incoming: Incoming {
                buffer: ObjCell::new(None),
                eof: Cell::new(false),
                app_paused: Cell::new(false),
                waiter_is_next: Cell::new(false),
                flow: Flow::new(limits::TLS_READ_HIGH_WATER),
            },
            outgoing: Outgoing {
                backlog: SendQueue::default(),
                lower_paused: Cell::new(false),
                flow: Flow::new(limits::TLS_WRITE_HIGH_WATER),
                lost_writes: LostWrites::default(),
            },
        },
    )?;
    let Some(this) = TlsProtocol::native().get(&made) else {
        return Err(PySystemError::raise("a new protocol has another type"));
    };
    set_app_protocol(this, protocol)?;
    let transport = TlsTransport::native().instantiate(
        py,
        TlsTransport { owner: Owner::new(loop_), protocol: cell(&made), closed: Cell::new(false) },
    )?;
    drop(this.app_transport.replace(Some(transport.into())));
    Ok(made)
}

/// Sets the application's protocol, and determines how it receives bytes.
pub(super) fn set_app_protocol(this: Tls<'_, '_>, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
    let receiver = if TlsProtocol::native().is_exactly(protocol) {
        Receiver::Native(&RECEIVER)
    } else if let Some(functions) = reader::of(protocol) {
        Receiver::Reader(functions)
    } else if is_buffered(protocol)? {
        Receiver::Buffered
    } else {
        Receiver::Data
    };
    this.receiver.set(receiver);
    drop(this.app.replace(Some(protocol.clone().into())));
    Ok(())
}
