//! `ringloop._native`: the parts of the event loop that run once per callback or packet.

#![allow(
    clippy::cast_precision_loss,
    reason = "Python's clock is a float of seconds: exact to a nanosecond for the first 100 days"
)]

mod datagram;
mod error;
mod event_loop;
mod ffi;
mod fs;
mod futures;
mod h3;
mod limits;
mod pipe;
mod quic;
mod sock;
mod stream;
mod streams;
mod tls;
mod transport;
mod webtransport;

use pyo3::prelude::*;
use ringloop::embed::sys::reserve::Reserved;

#[global_allocator]
static ALLOCATOR: Reserved = Reserved::new();

/// The extension module; a table of contents.
#[pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Before any type is created: types are created once per process.
        crate::ffi::check_main_interpreter(module.py())?;
        crate::ffi::intern_names(module.py())?;
        module.add_class::<crate::event_loop::LoopCore>()?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::event_loop::initialise(module)?;
        crate::stream::initialise(module)?;
        crate::sock::initialise(module)?;
        crate::datagram::initialise(module)?;
        crate::tls::initialise(module)?;
        crate::streams::initialise(module)?;
        crate::pipe::initialise(module)?;
        crate::futures::initialise(module)?;
        crate::fs::initialise(module)?;
        crate::quic::initialise(module)?;
        crate::h3::initialise(module)?;
        crate::webtransport::initialise(module)
    }
}
