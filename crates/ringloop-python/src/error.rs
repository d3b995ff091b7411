//! Conversion of Rust errors into Python exceptions, all in one place.

use std::io;
use std::path::Path;

use pyo3::exceptions::{
    PyBlockingIOError, PyInterruptedError, PyOSError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use ringloop::Error;
use ringloop::embed::sys::libc;
use ringloop::embed::sys::refused::RefusedCall;

use crate::ffi::{Raise as _, intern, new_path, raise_os};

/// Converts an engine error into its exception.
pub fn from_engine(error: Error) -> PyErr {
    match error {
        Error::Io(error) => from_io(&error),
        Error::DriverRefused(refusal) => raise_os(refusal.errno(), &refusal.to_string()),
        Error::UnknownDriver(_) | Error::UnknownDriverInEnvironment(_) => {
            PyValueError::raise(error.to_string())
        }
        Error::InboxFull { .. } => PyRuntimeError::raise(error.to_string()),
        Error::Closed => closed(),
        // Only of runtimes with several workers, which a loop is not.
        other => PyRuntimeError::raise(other.to_string()),
    }
}

/// Converts an I/O error into `OSError` (or its subclass), with errno and the C library's message.
pub fn from_io(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(errno) => from_errno(errno),
        None => match RefusedCall::of(error) {
            Some(refused) => raise_os(refused.errno, &refused.to_string()),
            None => PyOSError::raise(error.to_string()),
        },
    }
}

/// Makes the `OSError` of an errno.
pub fn from_errno(errno: i32) -> PyErr {
    // `io::Error` appends "(os error N)"; Python shows the bare text.
    let text = io::Error::from_raw_os_error(errno).to_string();
    let bare = text.rfind(" (os error").map_or(text.as_str(), |end| &text[..end]).to_owned();
    raise_os(errno, &bare)
}

/// Converts an I/O error into its exception with the file name, as `open` does. An operation that
/// was rejected without a system call gives the same error.
pub fn with_path(py: Python<'_>, error: &io::Error, path: &Path) -> PyErr {
    let made = match (error.raw_os_error(), error.kind()) {
        (None, io::ErrorKind::PermissionDenied) => raise_os(libc::EACCES, &error.to_string()),
        (None, io::ErrorKind::InvalidInput) => return PyValueError::raise("embedded null byte"),
        _ => from_io(error),
    };
    let set = new_path(py, path.as_os_str())
        .and_then(|name| made.value(py).setattr(intern!(py, "filename"), name));
    match set {
        Ok(()) => made,
        Err(error) => error,
    }
}

/// Whether a system call would have blocked, or was interrupted: it is repeated later.
pub fn is_blocked(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// As [`is_blocked`], for an exception of the socket's own method.
pub fn would_block(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyBlockingIOError>(py) || error.is_instance_of::<PyInterruptedError>(py)
}

/// asyncio's error for a closed loop.
#[cold]
pub fn closed() -> PyErr {
    PyRuntimeError::raise("Event loop is closed")
}
