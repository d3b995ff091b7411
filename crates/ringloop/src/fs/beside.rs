//! What no ring can do to files: `std`'s own calls, on the loop's pool threads, on both drivers.
//!
//! Called by: Rust programs. Never does: anything on the loop's thread.
//!
//! So they mean what `std::fs` means by them, to the errors and to the races they are safe against. A call
//! that has begun goes on to its end, also where its future is dropped.

use crate::executor::spawn_blocking;
use std::fs::Permissions;
use std::io;
use std::path::{Path, PathBuf};

/// Run a call of `std` on a pool thread.
pub(super) async fn beside<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(call).await.map_err(io::Error::from)?
}

/// Copy a file's contents and permissions; returns how many bytes. A file that is there is overwritten.
///
/// Shape: the kernel copies (`copy_file_range`, or splicing where that is refused), and shares the blocks
/// where the file system can; no byte passes through this process.
/// Errors: those of open(2), read(2) and write(2); [`io::ErrorKind::InvalidInput`] where `from` is no
/// regular file.
/// Cancel safety: it goes on to its end.
/// Source: `std::fs::copy`; `copy_file_range(2)`.
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
    beside(move || std::fs::copy(from, to)).await
}

/// Give a file's or directory's absolute name, without symbolic links, `.` and `..` in it.
///
/// Errors: those of realpath(3), such as [`io::ErrorKind::NotFound`].
/// Cancel safety: nothing is lost.
/// Source: `std::fs::canonicalize`; realpath(3).
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    beside(move || std::fs::canonicalize(path)).await
}

/// Read what a symbolic link holds.
///
/// Errors: those of readlink(2); [`io::ErrorKind::InvalidInput`] where `path` is no symbolic link.
/// Cancel safety: nothing is lost.
/// Source: `std::fs::read_link`; readlink(2).
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref().to_owned();
    beside(move || std::fs::read_link(path)).await
}

/// Set the permissions of a file or directory; a symbolic link is followed.
///
/// Errors: those of chmod(2).
/// Cancel safety: it goes on to its end.
/// Source: `std::fs::set_permissions`; chmod(2).
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    beside(move || std::fs::set_permissions(path, permissions)).await
}

/// Remove a directory with everything in it. A symbolic link is removed, and not what it points to, also
/// where somebody puts one in a directory's place meanwhile.
///
/// Errors: those of opening, reading and removing what is in it; some of it may be gone then.
/// [`io::ErrorKind::NotFound`] where there is no `path`.
/// Cancel safety: it goes on to its end.
/// Source: `std::fs::remove_dir_all`; openat(2) with `O_NOFOLLOW`, unlinkat(2).
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_owned();
    beside(move || std::fs::remove_dir_all(path)).await
}
