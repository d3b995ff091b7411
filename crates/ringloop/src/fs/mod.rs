//! Layer 4: files as `async fn`s over operations, with the names of `std::fs`.
//!
//! Called by: applications.
//!
//! On the ring every call is an operation of the kernel. On the readiness driver cached data is read at
//! once, and everything else runs on the blocking pool, since epoll does not support files. Calls
//! without an operation run on the pool on both: [`copy`], [`read_dir`], [`remove_dir_all`],
//! [`canonicalize`], [`read_link`], [`set_permissions`].
//!
//! An operation owns its buffers and returns them with the result.
//!
//! | task | fastest by |
//! |---|---|
//! | read a file to its end | [`read`] (one allocation), or [`File::read_at`] into one reused buffer of [`CHUNK`] bytes |
//! | read many files | a task each: the ring takes all their reads by one system call |
//! | copy a file | [`copy`] |
//! | write a log | [`File::write_vectored_at`], or [`File::append`](OpenOptions::append) and [`File::write`] |
//! | many small operations, `O_DIRECT`, many bytes through one buffer | [`RegisteredFile`] with [`RegisteredBuf`]s |
//! | file to socket or pipe | [`splice`] by way of a [`Pipe`] |
//!
//! The kernel's errors are those of the system call that a function names.
//!
//! A dropped file is closed once no pool thread uses its descriptor.

mod beside;
mod dir;
mod file;
mod metadata;
pub(crate) mod options;
mod path;
mod pipe;
mod registered;
mod transfers;
mod whole;

pub use crate::op::RegisteredBuf;
pub use beside::{canonicalize, copy, read_link, remove_dir_all, set_permissions};
pub use dir::{DirEntry, ReadDir, read_dir};
pub use file::File;
pub use metadata::{FileType, Metadata};
pub use options::OpenOptions;
pub use path::{
    create_dir, create_dir_all, hard_link, metadata, remove_dir, remove_file, rename, symlink,
    symlink_metadata, try_exists,
};
pub use pipe::{Pipe, splice, tee};
pub use registered::RegisteredFile;
pub use whole::{CHUNK, read, read_to_string, write};

use std::ffi::CString;
use std::io;
use std::path::Path;

/// A path as a C string.
fn name(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, "a file's name has a NUL byte in it")
    })
}
