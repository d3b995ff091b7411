//! `ringloop._native`: the parts of the event loop that run once a callback or a packet.

#[allow(unused, reason = "the classes that use it land next")]
mod ffi;

use pyo3::prelude::*;

/// The extension module; a table of contents.
#[pymodule(gil_used = false)]
mod _native {}
