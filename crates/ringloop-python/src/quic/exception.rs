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
    let made = module.and_then(|module| {
        let class = module.bind(py).getattr(ffi::new_str(py, class)?)?;
        let arguments = arguments.into_object(py)?.cast_into::<PyTuple>()?;
        class.call1(arguments)
    });
    match made {
        Ok(made) => PyErr::from_value(made),
        Err(error) => error,
    }
}

/// The error of an invalid setting.
pub fn configuration(py: Python<'_>, text: String) -> PyErr {
    exception(py, "ConfigurationError", (text,))
}
