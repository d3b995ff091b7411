//! How transports pass bytes to the protocols of native streams, without a Python call.
//!
//! Owns: the table of functions, which `streams` fills in when the module is initialised. Called by: the reading
//! side of stream transports and of TLS, for a protocol that [`of`] knows. `data_received` does the same
//! for any other transport.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use pyo3::prelude::*;

use crate::ffi::Obj;

/// Receives into memory, as recv(2) does. Must not call into Python.
pub(crate) type Receive<'a> = &'a mut dyn FnMut(&mut [MaybeUninit<u8>]) -> io::Result<usize>;

/// What [`ReaderFunctions::fill`] is.
pub(crate) type Fill = fn(&Bound<'_, PyAny>, Receive<'_>) -> PyResult<Option<io::Result<usize>>>;

/// Functions of the protocol of native streams.
pub(crate) struct ReaderFunctions {
    /// Whether an object is such a protocol.
    pub is_protocol: fn(&Bound<'_, PyAny>) -> bool,
    /// Takes a whole `bytes` object, without running user code. Returns it if the user has changed
    /// the reader or the protocol: then it is for `data_received`.
    pub feed: fn(&Bound<'_, PyAny>, Obj) -> PyResult<Option<Obj>>,
    /// If the reader waits for the rest of a known number of bytes, receives straight into their object; `None`
    /// if it does not.
    pub fill: Fill,
}

static FUNCTIONS: OnceLock<&'static ReaderFunctions> = OnceLock::new();

/// Fills in the table.
pub(crate) fn provide(functions: &'static ReaderFunctions) {
    // Set already if the module is imported again: the same functions.
    let _ = FUNCTIONS.set(functions);
}

/// The functions for `protocol`, if it is one of native streams.
pub(crate) fn of(protocol: &Bound<'_, PyAny>) -> Option<&'static ReaderFunctions> {
    FUNCTIONS.get().copied().filter(|functions| (functions.is_protocol)(protocol))
}
