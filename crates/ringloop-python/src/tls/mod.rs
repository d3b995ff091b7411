//! TLS over any transport: the state machine between a transport and the application's protocol.
//!
//! Owns: one TLS connection, as two objects. [`TlsProtocol`] is the protocol of the lower
//! transport, and holds everything; [`TlsTransport`] is the application's transport. Called by: the
//! lower transport, user code, the loop (`_make_ssl_transport`, `start_tls` in `ringloop/_tls.py`).
//! Cryptography is in `engine`.
//!
//! | file        | contents                                                                |
//! |-------------|-------------------------------------------------------------------------|
//! | `state`     | the state of a connection, and its legal transitions                    |
//! | `create`    | creation of a connection                                                |
//! | `protocol`  | the Python surface towards the lower transport                          |
//! | `transport` | the Python surface towards the application                              |
//! | `handshake` | from `connection_made` to the application's `connection_made`           |
//! | `incoming`  | from ciphertext to `data_received`                                      |
//! | `outgoing`  | from `write` to the lower transport                                     |
//! | `shutdown`  | reading up to the end, and closing                                      |
//! | `lower`     | the lower transport, and how a connection ends at once                  |
//! | `engine`    | the `ssl.SSLObject`, by its methods or by libssl                        |
//!
//! Byte path in: `stream::read` → [`incoming`] → `protocol.data_received`, without a Python call
//! or object per record if the lower transport is ours and the engine is direct.
//! Byte path out: `transport.write` → [`outgoing`] → `stream::write`.
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

use std::ffi::CStr;

use pyo3::prelude::*;

use crate::ffi::{Payload, intern, payload};
use state::{TlsProtocol, TlsTransport};
pub(crate) use transport::{is_transport_closing as is_closing, write_to as write};

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
