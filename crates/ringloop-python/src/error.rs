//! The one exit from Rust's errors to Python's exceptions.

use std::io;

use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use ringloop::Error;

/// Turn an engine error into its exception.
pub fn from_engine(error: Error) -> PyErr {
    match error {
        Error::Io(error) => from_io(&error),
        Error::DriverRefused(reason) => PyOSError::new_err(reason),
        Error::UnknownDriver(_) => PyValueError::new_err(error.to_string()),
        Error::InboxFull { .. } => PyRuntimeError::new_err(error.to_string()),
        Error::Closed => closed(),
        // Of runtimes with several workers, which a loop is not.
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

/// Turn an I/O error into `OSError` (or its subclass), with errno and the C library's words.
pub fn from_io(error: &io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(errno) => from_errno(errno),
        None => PyOSError::new_err(error.to_string()),
    }
}

/// Make the `OSError` of an errno.
pub fn from_errno(errno: i32) -> PyErr {
    // `io::Error` appends "(os error N)"; Python shows the bare text.
    let text = io::Error::from_raw_os_error(errno).to_string();
    let bare = text
        .rfind(" (os error")
        .map_or(text.as_str(), |end| &text[..end])
        .to_owned();
    PyOSError::new_err((errno, bare))
}

/// What asyncio says of a loop that was closed.
#[cold]
pub fn closed() -> PyErr {
    PyRuntimeError::new_err("Event loop is closed")
}
