//! `Handshake`: what a handshake has agreed on.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::ffi::{self, Fallible, intern};

/// What a handshake has agreed on.
#[pyclass(frozen, get_all, module = "ringloop._native.quic")]
pub struct Handshake {
    pub(super) alpn: Fallible<Option<String>>,
    pub(super) server_name: Fallible<Option<String>>,
    pub(super) cipher_suite: Fallible<Option<String>>,
    pub(super) key_exchange: Fallible<Option<String>>,
    pub(super) is_resumed: bool,
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
        let template = intern!(
            py,
            "Handshake(alpn=%r, cipher_suite=%r, key_exchange=%r, is_resumed=%r)"
        );
        ffi::fill_template(template, &shown.each_ref())
    }
}
