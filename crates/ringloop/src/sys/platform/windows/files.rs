//! Files: metadata in the form of statx(2).

pub use super::super::super::libc::{
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
};

use super::super::super::fd::RawFd;
use super::super::super::libc::{self, c_int};
use std::ffi::OsStr;
use std::fs::{DirEntry, FileType, Permissions};

/// No flag of this system.
pub const AT_EMPTY_PATH: c_int = 0x1000;
/// No flag of this system.
pub const AT_STATX_DONT_SYNC: c_int = 0;
/// A pipe that the engine makes has no packets.
pub const O_DIRECT: Option<c_int> = None;
/// No file is opened for its name alone.
pub const O_PATH: c_int = 0;
/// No file is without a name.
pub const O_TMPFILE: c_int = 0;
/// A try without waiting is refused.
pub const RWF_NOWAIT: c_int = 8;
/// No device has numbers.
pub const MEMORY_DEVICES: u32 = 1;
/// The fields of stat(2).
pub const STATX_BASIC_STATS: u32 = 0x7ff;
/// The time of birth.
pub const STATX_BTIME: u32 = 0x800;
/// Buffers of a vector.
pub const UIO_MAXIOV: c_int = 1024;

/// A time of [`statx`].
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, missing_docs)]
pub struct statx_timestamp {
    pub tv_sec: i64,
    pub tv_nsec: u32,
}

/// Metadata with Linux's names.
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, missing_docs)]
pub struct statx {
    pub stx_mask: u32,
    pub stx_blksize: u32,
    pub stx_nlink: u32,
    pub stx_uid: u32,
    pub stx_gid: u32,
    pub stx_mode: u16,
    pub stx_ino: u64,
    pub stx_size: u64,
    pub stx_blocks: u64,
    pub stx_atime: statx_timestamp,
    pub stx_btime: statx_timestamp,
    pub stx_ctime: statx_timestamp,
    pub stx_mtime: statx_timestamp,
    pub stx_rdev_major: u32,
    pub stx_rdev_minor: u32,
    pub stx_dev_major: u32,
    pub stx_dev_minor: u32,
}

/// Kind and permissions of a file.
pub const fn mode_of(status: &libc::stat) -> u32 {
    status.st_mode
}

/// The major number of a device.
pub const fn major(_: libc::dev_t) -> u32 {
    0
}

/// fcntl(2), `F_GETFL`.
pub fn status_flags(fd: RawFd) -> c_int {
    libc::status_flags(fd)
}

/// Permissions of a file with this mode.
///
/// # Panics
/// Always: std makes none without a file, and no metadata is read yet.
pub fn permissions_of(_mode: u32) -> Permissions {
    unreachable!("metadata is not read on this system")
}

/// True for a pipe, a socket, a block device, a character device: no file is one here.
pub fn special_kinds(_found: FileType) -> [bool; 4] {
    [false; 4]
}

/// Inode number of a directory's entry: it has none.
pub fn inode_of(_entry: &DirEntry) -> u64 {
    0
}

/// The bytes of a name, which are UTF-8 here; of others, an empty one.
pub fn os_str_of(bytes: &[u8]) -> &OsStr {
    std::str::from_utf8(bytes).unwrap_or_default().as_ref()
}
