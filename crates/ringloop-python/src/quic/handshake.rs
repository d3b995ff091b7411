//! `Handshake`: what a handshake has agreed on.

use pyo3::prelude::*;

/// What a handshake has agreed on.
#[pyclass(frozen, get_all, module = "ringloop._native.quic")]
pub struct Handshake {
    pub(super) alpn: Option<String>,
    pub(super) server_name: Option<String>,
    pub(super) cipher_suite: Option<String>,
    pub(super) key_exchange: Option<String>,
    pub(super) is_resumed: bool,
    pub(super) early_data_accepted: bool,
}

#[pymethods]
impl Handshake {
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let shown = |name: &str| Ok::<_, PyErr>(slf.getattr(name)?.repr()?.to_string());
        Ok(format!(
            "Handshake(alpn={}, cipher_suite={}, key_exchange={}, is_resumed={})",
            shown("alpn")?,
            shown("cipher_suite")?,
            shown("key_exchange")?,
            shown("is_resumed")?,
        ))
    }
}
