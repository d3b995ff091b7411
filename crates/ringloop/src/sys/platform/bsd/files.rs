//! Files: metadata in the form of statx(2), vectors at an offset.

pub use super::super::posix::{RWF_NOWAIT, preadv2, pwritev2};

use std::ffi::{c_char, c_int, c_uint};
use std::mem::MaybeUninit;

/// Taken out by [`statx`].
pub const AT_EMPTY_PATH: c_int = 0x4000_0000;
/// Metadata is what the system has.
pub const AT_STATX_DONT_SYNC: c_int = 0;
/// A pipe has no packets.
pub const O_DIRECT: Option<c_int> = None;
/// No file is opened for its name alone.
pub const O_PATH: c_int = 0;
/// No file is without a name.
pub const O_TMPFILE: c_int = 0;
/// The fields of stat(2).
pub const STATX_BASIC_STATS: u32 = 0x7ff;
/// The time of birth.
pub const STATX_BTIME: u32 = 0x800;

/// The kind of a file, in its mode.
pub const S_IFMT: u32 = libc::S_IFMT as u32;
/// A regular file.
pub const S_IFREG: u32 = libc::S_IFREG as u32;
/// A directory.
pub const S_IFDIR: u32 = libc::S_IFDIR as u32;
/// A symbolic link.
pub const S_IFLNK: u32 = libc::S_IFLNK as u32;
/// A pipe.
pub const S_IFIFO: u32 = libc::S_IFIFO as u32;
/// A socket.
pub const S_IFSOCK: u32 = libc::S_IFSOCK as u32;
/// A character device.
pub const S_IFCHR: u32 = libc::S_IFCHR as u32;
/// A block device.
pub const S_IFBLK: u32 = libc::S_IFBLK as u32;

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
    status.st_mode as u32
}

/// The major number of a device.
pub const fn major(device: libc::dev_t) -> u32 {
    libc::major(device) as u32
}

/// statx(2) by fstatat(2), or by fstat(2) for an empty path with [`AT_EMPTY_PATH`].
///
/// # Safety
/// `path` is a C string, and `into` room for one.
pub unsafe fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    _mask: c_uint,
    into: *mut statx,
) -> c_int {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: by this function's contract.
    let is_empty = unsafe { *path } == 0;
    let done = if is_empty && flags & AT_EMPTY_PATH != 0 {
        // SAFETY: room for one, live for the call.
        unsafe { libc::fstat(dir, found.as_mut_ptr()) }
    } else {
        let flags = flags & libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: as above.
        unsafe { libc::fstatat(dir, path, found.as_mut_ptr(), flags) }
    };
    if done == 0 {
        // SAFETY: the call has filled it.
        let found = unsafe { found.assume_init() };
        // SAFETY: by this function's contract.
        unsafe { into.write(with_linux_names(&found)) };
    }
    done
}

#[allow(clippy::cast_lossless, reason = "the systems differ in the types")]
fn with_linux_names(found: &libc::stat) -> statx {
    let time = |tv_sec, tv_nsec: i64| statx_timestamp { tv_sec, tv_nsec: tv_nsec as u32 };
    statx {
        stx_mask: STATX_BASIC_STATS | STATX_BTIME,
        stx_blksize: found.st_blksize as u32,
        stx_nlink: found.st_nlink as u32,
        stx_uid: found.st_uid,
        stx_gid: found.st_gid,
        stx_mode: found.st_mode,
        stx_ino: found.st_ino,
        stx_size: found.st_size as u64,
        stx_blocks: found.st_blocks as u64,
        stx_atime: time(found.st_atime, found.st_atime_nsec),
        stx_btime: time(found.st_birthtime, found.st_birthtime_nsec),
        stx_ctime: time(found.st_ctime, found.st_ctime_nsec),
        stx_mtime: time(found.st_mtime, found.st_mtime_nsec),
        stx_rdev_major: libc::major(found.st_rdev) as u32,
        stx_rdev_minor: libc::minor(found.st_rdev) as u32,
        stx_dev_major: libc::major(found.st_dev) as u32,
        stx_dev_minor: libc::minor(found.st_dev) as u32,
    }
}
