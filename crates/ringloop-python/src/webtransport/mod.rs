//! WebTransport for Python: `ringloop._native.webtransport`.
//!
//! Owns: [`session`], a session on a connection whose HTTP/3 is driven natively
//! (`crate::quic::http`); [`opening`], how sessions come about. Streams are QUIC's own class.
//! Called by: `ringloop.webtransport`.

mod opening;
mod session;

use pyo3::prelude::*;

use crate::ffi::intern;

/// Adds the submodule.
pub fn initialise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let webtransport = PyModule::new(py, "ringloop._native.webtransport")?;
    webtransport.add_class::<session::Session>()?;
    webtransport.add_function(wrap_pyfunction!(opening::host, &webtransport)?)?;
    webtransport.add_function(wrap_pyfunction!(opening::drive, &webtransport)?)?;
    webtransport.add_function(wrap_pyfunction!(opening::takes_session, &webtransport)?)?;
    webtransport.add_function(wrap_pyfunction!(opening::open_session, &webtransport)?)?;
    webtransport.add_function(wrap_pyfunction!(opening::accept, &webtransport)?)?;
    webtransport.gil_used(false)?;
    module.add("webtransport", &webtransport)?;
    // As with `quic`: there is no file of that name.
    py.import(intern!(py, "sys"))?
        .getattr(intern!(py, "modules"))?
        .set_item(intern!(py, "ringloop._native.webtransport"), webtransport)
}
