//! HTTP/3 for Python: `ringloop._native.h3`.
//!
//! Owns: [`exchange`], requests and responses on a connection whose HTTP/3 is driven natively
//! (`crate::quic::http`); [`asgi`] and [`scope`], requests in ASGI's form; [`connection`], the HTTP/3
//! state for a QUIC connection that Python drives. Called by: `ringloop.h3`, `ringloop.serve`;
//! `ringloop.quic.h3`.

mod asgi;
mod connection;
mod exchange;
mod fields;
mod requests;
mod scope;

pub use exchange::Exchange;
pub use fields::{Pair, checked, pairs};
pub use requests::{refused, with_http};

use pyo3::prelude::*;

use crate::ffi::intern;

/// Adds the submodule.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let h3 = PyModule::new(py, "ringloop._native.h3")?;
    h3.add_class::<connection::Connection>()?;
    h3.add_class::<exchange::Exchange>()?;
    h3.add_class::<asgi::AsgiRequest>()?;
    h3.add_function(wrap_pyfunction!(requests::drive, &h3)?)?;
    h3.add_function(wrap_pyfunction!(requests::open_exchange, &h3)?)?;
    h3.add_function(wrap_pyfunction!(requests::take_ready, &h3)?)?;
    h3.add_function(wrap_pyfunction!(requests::go_away, &h3)?)?;
    h3.add_function(wrap_pyfunction!(requests::is_going_away, &h3)?)?;
    h3.add_function(wrap_pyfunction!(requests::request_count, &h3)?)?;
    h3.add_function(wrap_pyfunction!(requests::kept, &h3)?)?;
    h3.add_function(wrap_pyfunction!(requests::unacknowledged_count, &h3)?)?;
    h3.gil_used(false)?;
    module.add("h3", &h3)?;
    // As with `quic`: there is no file of that name.
    py.import(intern!(py, "sys"))?
        .getattr(intern!(py, "modules"))?
        .set_item(intern!(py, "ringloop._native.h3"), h3)
}
