//! Files: renames with flags, and flushes that reach the disk.

pub use super::super::posix::pipe2;

use super::super::errno::fail;
use std::ffi::{c_char, c_int, c_long, c_uint};

/// Refuses a file that exists.
const RENAME_NOREPLACE: c_uint = 1;
/// Swaps two files.
const RENAME_EXCHANGE: c_uint = 2;

/// `renameat2(2)` by `renameatx_np(2)`.
///
/// # Safety
/// Both names are C strings.
pub unsafe fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_long {
    let flags = match flags {
        0 => 0,
        RENAME_NOREPLACE => libc::RENAME_EXCL,
        RENAME_EXCHANGE => libc::RENAME_SWAP,
        _ => return c_long::from(fail(libc::EINVAL)),
    };
    // SAFETY: by this function's contract.
    c_long::from(unsafe { libc::renameatx_np(from_dir, from, to_dir, to, flags) })
}

/// Flushes a file to its disk. fsync(2) of this system leaves it in the disk's own buffer: see there,
/// `F_FULLFSYNC`. Rust's and Go's standard libraries do the same.
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn fsync(fd: c_int) -> c_int {
    // SAFETY: no pointer is passed.
    let done = unsafe { libc::fcntl(fd, libc::F_FULLFSYNC) };
    // SAFETY: no pointer is passed; a file system without the command has fsync(2).
    if done < 0 { unsafe { libc::fsync(fd) } } else { done }
}

/// As [`fsync`].
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: no pointer is passed.
    unsafe { fsync(fd) }
}
