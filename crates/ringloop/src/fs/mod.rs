//! Layer 4: files as `async fn`s over operations, with the names of `std::fs`.
//!
//! Called by: Rust programs. Never does: a system call of its own on a file.
//!
//! On the ring every operation is the kernel's, and no thread of ours sees the data. On the readiness
//! driver a read takes what is in memory at once; all else goes to the loop's pool threads, since epoll
//! knows nothing of files. What the ring has no operation for goes to a pool thread on both: [`copy`],
//! [`read_dir`], [`remove_dir_all`], [`canonicalize`], [`read_link`], [`set_permissions`].
//!
//! Buffers are owned by the operation while it runs and come back with the result, whatever it is.
//!
//! | to do | the fast way |
//! |---|---|
//! | read a file to its end | [`read`] (one allocation), or [`File::read_at`] into one buffer of [`CHUNK`] bytes again and again |
//! | read many files | a task each: the ring takes all their reads by one system call |
//! | copy a file | [`copy`] |
//! | write a log | [`File::write_vectored_at`], or [`File::append`](OpenOptions::append) and [`File::write`] |
//! | many small operations, `O_DIRECT`, many bytes through one buffer | [`RegisteredFile`] with [`RegisteredBuf`]s |
//! | file to socket or pipe | [`splice`] by way of a [`Pipe`] |
//!
//! # Ownership and cancel safety
//!
//! | operation | owns while it runs | dropped before it is over |
//! |---|---|---|
//! | read, `read_at`, vectored | the buffers | the bytes are lost with the buffer; [`File::read`] may have moved the position |
//! | write, `write_at`, vectored | the buffers | it may be written or not |
//! | `read_exact_at`, `write_all_at`, [`read`], [`write()`], [`create_dir_all`] | as above | some of it was done |
//! | [`copy`], [`remove_dir_all`], [`set_permissions`] | the names | it goes on to its end |
//! | [`ReadDir::next`] | the directory | nothing is lost: safe |
//! | open | the name | a file that was opened is closed; one that was created exists |
//! | metadata | the answer | nothing happened |
//! | rename, remove, create, links, `set_len`, `allocate` | the names | it may have happened or not |
//! | sync | nothing | it may go on |
//! | splice, tee | nothing | bytes that were moved are in the pipe |
//!
//! A file that is dropped is closed when no thread can name its descriptor any more.

mod beside;
mod dir;
mod file;
mod metadata;
mod options;
mod path;
mod pipe;
mod registered;
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
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A name for the kernel.
fn name(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "a file's name has a NUL byte in it",
        )
    })
}
