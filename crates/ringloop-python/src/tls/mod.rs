//! TLS over any transport: the state machine that stands between a transport and a user's protocol.

#![allow(
    dead_code,
    reason = "the state machine that calls it comes with the next change"
)]

mod engine;

use pyo3::prelude::*;

/// Make the functions.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(engine::tls_engine, module)?)
}
