//! `Handshake`: what a handshake negotiated.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::ffi::{self, Fallible, intern};

/// What a handshake negotiated.
#[pyclass(frozen, get_all, module = "ringloop._native.quic")]
pub struct Handshake {
    /// The negotiated application protocol (RFC 7301); None: none was requested.
    pub(super) alpn: Fallible<Option<String>>,
    /// Servers: the name that the client requested (RFC 6066 §3); None if it named none, and for clients.
    pub(super) server_name: Fallible<Option<String>>,
    /// The cipher suite, as in RFC 8446 §B.4 (`TLS13_AES_128_GCM_SHA256`); None before it is known.
    pub(super) cipher_suite: Fallible<Option<String>>,
    /// The group of the key exchange, as in RFC 8446 §4.2.7 (`X25519MLKEM768`, `X25519`); None before it is known.
    pub(super) key_exchange: Fallible<Option<String>>,
    /// Whether an earlier session was resumed (RFC 8446 §2.2), without presenting certificates again.
    pub(super) is_resumed: bool,
    /// Clients: whether the server accepted early data (RFC 9001 §4.6.2); False if none was sent, and for servers.
    pub(super) early_data_accepted: bool,
}

#[pymethods]
impl Handshake {
    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyString>> {
        let py = slf.py();
        let shown = [
            slf.getattr(intern!(py, "alpn"))?,
            slf.getattr(intern!(py, "cipher_suite"))?,
            slf.getattr(intern!(py, "key_exchange"))?,
            slf.getattr(intern!(py, "is_resumed"))?,
        ];
        let template =
            intern!(py, "Handshake(alpn=%r, cipher_suite=%r, key_exchange=%r, is_resumed=%r)");
        ffi::fill_template(template, &shown.each_ref())
    }
}
