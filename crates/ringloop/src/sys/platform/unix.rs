//! What systems of Unix have alike, and Windows has not.

use std::ffi::{OsStr, c_int};
use std::fs::{DirEntry, FileType, Permissions};
use std::io::IoSlice;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileTypeExt, PermissionsExt};

/// False: an error is an errno.
pub const ERRORS_ARE_WINDOWS: bool = false;
/// True: dlsym(3) of a module finds what the libraries that it was linked to have.
pub const SEES_LIBRARIES_OF_MODULES: bool = true;

/// fcntl(2), `F_GETFL`.
#[inline]
pub fn status_flags(fd: RawFd) -> c_int {
    // SAFETY: no pointer is passed.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }
}

/// The vector of buffers that std has in the kernel's form.
#[inline]
pub fn vector_of<'a>(buffers: &'a [IoSlice<'_>]) -> &'a [libc::iovec] {
    let (at, count) = (buffers.as_ptr().cast(), buffers.len());
    // SAFETY: std promises that an IoSlice has the form of an iovec.
    unsafe { std::slice::from_raw_parts(at, count) }
}

/// Permissions of a file with this mode.
pub fn permissions_of(mode: u32) -> Permissions {
    Permissions::from_mode(mode)
}

/// True for a pipe, a socket, a block device, a character device.
pub fn special_kinds(found: FileType) -> [bool; 4] {
    [found.is_fifo(), found.is_socket(), found.is_block_device(), found.is_char_device()]
}

/// Inode number of a directory's entry.
pub fn inode_of(entry: &DirEntry) -> u64 {
    entry.ino()
}

/// The bytes of a name.
pub fn os_str_of(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
