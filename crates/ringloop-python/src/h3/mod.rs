//! HTTP/3 for Python: `ringloop._native.h3`.
//!
//! Owns: [`connection`], the state of HTTP/3 beside a QUIC connection of Python's. Called by:
//! `ringloop.quic.h3`. Never does: touch QUIC; what it has to send is taken and sent in Python.

mod connection;

use pyo3::prelude::*;

use crate::ffi::intern;

/// Adds the submodule.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let h3 = PyModule::new(py, "ringloop._native.h3")?;
    h3.add_class::<connection::Connection>()?;
    h3.gil_used(false)?;
    module.add("h3", &h3)?;
    // As with `quic`: there is no file of that name.
    py.import(intern!(py, "sys"))?
        .getattr(intern!(py, "modules"))?
        .set_item(intern!(py, "ringloop._native.h3"), h3)
}
