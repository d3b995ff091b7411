//! Exceptions of `ringloop.quic.errors`, by class name.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::ffi::{self, IntoObject, intern};

/// Makes an exception of that module.
pub fn exception<'py>(py: Python<'py>, class: &str, arguments: impl IntoObject<'py>) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import(intern!(py, "ringloop.quic.errors"))?.unbind())
    });
    let made = module.and_then(|module| make(module.bind(py).as_any(), class, arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Makes an exception of `ringloop.h3.errors`.
pub fn http_exception<'py>(py: Python<'py>, class: &str, arguments: impl IntoObject<'py>) -> PyErr {
    let made = py
        .import(intern!(py, "ringloop.h3.errors"))
        .and_then(|module| make(module.as_any(), class, arguments));
    made.map_or_else(|error| error, PyErr::from_value)
}

fn make<'py>(
    module: &Bound<'py, PyAny>,
    class: &str,
    arguments: impl IntoObject<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = module.py();
    let class = module.getattr(ffi::new_str(py, class)?)?;
    class.call1(arguments.into_object(py)?.cast_into::<PyTuple>()?)
}

/// The error of an invalid setting.
pub fn configuration(py: Python<'_>, text: String) -> PyErr {
    exception(py, "ConfigurationError", (text,))
}
