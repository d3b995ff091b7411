//! File calls without an operation: `std`'s own, on the blocking pool of both drivers.
//!
//! Called by: applications. Errors and guarantees are those of `std::fs`. A call that has begun runs to
//! its end, even if its future is dropped.

use crate::executor::spawn_blocking;
use std::fs::Permissions;
use std::io;
use std::path::{Path, PathBuf};

/// Runs a call of `std` on a pool thread.
pub(super) async fn beside<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(call).await.map_err(io::Error::from)?
}

/// Copies a file's contents and permissions; returns the byte count. Overwrites an existing file.
///
/// The kernel copies (`copy_file_range`, or splicing where that is refused), and shares blocks
/// where the file system supports it. See `std::fs::copy`; `copy_file_range(2)`.
///
/// # Errors
/// Those of open(2), read(2) and write(2); [`io::ErrorKind::InvalidInput`] where `from` is no
/// regular file.
///
/// # Cancel safety
/// It continues to its end.
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
    beside(move || std::fs::copy(from, to)).await
}

/// The absolute path, without symbolic links, `.` and `..`. See `std::fs::canonicalize`;
/// realpath(3).
///
/// # Errors
/// Those of realpath(3), such as [`io::ErrorKind::NotFound`].
///
/// # Cancel safety
/// Cancel safe.
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    beside(move || std::fs::canonicalize(path)).await
}

/// The target of a symbolic link. See `std::fs::read_link`; readlink(2).
///
/// # Errors
/// Those of readlink(2); [`io::ErrorKind::InvalidInput`] where `path` is no symbolic link.
///
/// # Cancel safety
/// Cancel safe.
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    beside(move || std::fs::read_link(path)).await
}

/// Sets the permissions of a file or directory; follows a symbolic link. See
/// `std::fs::set_permissions`; chmod(2).
///
/// # Cancel safety
/// It continues to its end.
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    beside(move || std::fs::set_permissions(path, permissions)).await
}

/// Removes a directory with its contents. Removes symbolic links, not their targets, even if one
/// replaces a directory meanwhile. See `std::fs::remove_dir_all`; openat(2) with `O_NOFOLLOW`,
/// unlinkat(2).
///
/// # Errors
/// Those of opening, reading and removing what is in it; some of it may be gone then.
/// [`io::ErrorKind::NotFound`] if there is no `path`.
///
/// # Cancel safety
/// It continues to its end.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    beside(move || std::fs::remove_dir_all(path)).await
}
