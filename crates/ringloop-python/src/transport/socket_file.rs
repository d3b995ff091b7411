//! File of a Unix server's socket.
//!
//! Called by: `python/ringloop/_listen.py`, when a server ends. A native call, because tools that
//! watch Python's `os` for blocking calls exempt asyncio's own by name, but not ours.

use std::ffi::CString;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ringloop::embed::sys::path;

use crate::error;
use crate::ffi::Raise as _;

/// Remove the file at `path`, unless it has another inode number by now: somebody else's is there.
#[pyfunction]
pub(super) fn remove_socket_file(path: &[u8], inode: u64) -> PyResult<()> {
    let path = CString::new(path)
        .map_err(|_| PyValueError::raise("embedded null byte in the path of a socket"))?;
    let mut found = path::empty_metadata();
    let removed = path::metadata(libc::AT_FDCWD, &path, 0, &mut found).and_then(|()| {
        if found.stx_ino == inode {
            path::unlink(libc::AT_FDCWD, &path, 0)
        } else {
            Ok(())
        }
    });
    removed.map_err(|error| error::from_io(&error))
}
