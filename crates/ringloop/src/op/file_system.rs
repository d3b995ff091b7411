//! Operations on names and on a file's space, which wait for a disk or a server at most.
//!
//! Readiness form: the system call, on a pool thread. Where the ring has no such entry (`FTRUNCATE`
//! before 6.9) the driver makes the call itself, which waits at most for the file system's journal.

use super::operation::{NO_FD, Need, Operation};
use crate::sys::fd::RawFd;
use crate::sys::uring::Feature;
use crate::sys::uring::abi::{self, Sqe};
use crate::sys::{path, storage};
use std::ffi::CString;
use std::io;

/// The two forms of an operation: fields of its entry, and a system call that uses `$fds`.
macro_rules! forms {
    (
        $op:ident($this:ident): $opcode:ident { $($part:ident: $value:expr,)+ }
        on $fds:expr, $call:expr $(, wants $feature:expr)?
    ) => {
        impl Operation for $op {
            fn prepare(&mut self, sqe: &mut Sqe) {
                let $this = self;
                sqe.opcode = abi::$opcode;
                $(sqe.$part = $value;)+
            }

            fn need(&self) -> Need {
                let $this = self;
                Need::Pool($fds)
            }

            fn work(&mut self) -> io::Result<u32> {
                let $this = self;
                $call.map(|()| 0)
            }

            $(fn wants(&self) -> Option<Feature> {
                Some($feature)
            })?
        }
    };
}

/// A name relative to a directory or to [`path::HERE`].
pub type NameAt = (RawFd, CString);

/// Renames a file, and replaces an existing one unless `flags` say otherwise: renameat2(2), the ring's
/// `RENAMEAT` (5.11).
#[derive(Debug)]
pub struct Rename {
    /// The existing name.
    pub from: NameAt,
    /// The new name.
    pub to: NameAt,
    /// `RENAME_*`.
    pub flags: u32,
}

forms! {
    Rename(op): IORING_OP_RENAMEAT {
        fd: op.from.0,
        addr: op.from.1.as_ptr() as u64,
        len: op.to.0 as u32,
        off: op.to.1.as_ptr() as u64,
        op_flags: op.flags,
    }
    on [op.from.0, op.to.0],
    path::rename((op.from.0, &op.from.1), (op.to.0, &op.to.1), op.flags)
}

/// Creates a hard link: linkat(2), the ring's `LINKAT` (5.15).
#[derive(Debug)]
pub struct HardLink {
    /// The existing name.
    pub from: NameAt,
    /// The new name.
    pub to: NameAt,
    /// `AT_SYMLINK_FOLLOW`, `AT_EMPTY_PATH`.
    pub flags: i32,
}

forms! {
    HardLink(op): IORING_OP_LINKAT {
        fd: op.from.0,
        addr: op.from.1.as_ptr() as u64,
        len: op.to.0 as u32,
        off: op.to.1.as_ptr() as u64,
        op_flags: op.flags as u32,
    }
    on [op.from.0, op.to.0],
    path::hard_link((op.from.0, &op.from.1), (op.to.0, &op.to.1), op.flags)
}

/// Removes a file's name: unlinkat(2), the ring's `UNLINKAT` (5.11).
#[derive(Debug)]
pub struct Unlink {
    /// Base of a relative path: a directory, or [`path::HERE`].
    pub dir: RawFd,
    /// The path.
    pub path: CString,
    /// `AT_REMOVEDIR` removes an empty directory instead of a file.
    pub flags: i32,
}

forms! {
    Unlink(op): IORING_OP_UNLINKAT {
        fd: op.dir,
        addr: op.path.as_ptr() as u64,
        op_flags: op.flags as u32,
    }
    on [op.dir, NO_FD], path::unlink(op.dir, &op.path, op.flags)
}

/// Creates a directory: mkdirat(2), the ring's `MKDIRAT` (5.15).
#[derive(Debug)]
pub struct MakeDir {
    /// Base of a relative path: a directory, or [`path::HERE`].
    pub dir: RawFd,
    /// The path.
    pub path: CString,
    /// Permissions, before the umask.
    pub mode: u32,
}

forms! {
    MakeDir(op): IORING_OP_MKDIRAT {
        fd: op.dir,
        addr: op.path.as_ptr() as u64,
        len: op.mode,
    }
    on [op.dir, NO_FD], path::make_dir(op.dir, &op.path, op.mode)
}

/// Creates a symbolic link: symlinkat(2), the ring's `SYMLINKAT` (5.15).
#[derive(Debug)]
pub struct Symlink {
    /// The link's target; it need not exist.
    pub target: CString,
    /// Base of a relative path: a directory, or [`path::HERE`].
    pub dir: RawFd,
    /// The link's path.
    pub path: CString,
}

forms! {
    Symlink(op): IORING_OP_SYMLINKAT {
        fd: op.dir,
        addr: op.target.as_ptr() as u64,
        off: op.path.as_ptr() as u64,
    }
    on [op.dir, NO_FD], path::symlink(&op.target, op.dir, &op.path)
}

/// Truncates a file, or extends it by a hole: ftruncate(2), the ring's `FTRUNCATE` (6.9).
#[derive(Debug)]
pub struct Truncate {
    /// The file.
    pub fd: RawFd,
    /// Bytes.
    pub len: u64,
}

forms! {
    Truncate(op): IORING_OP_FTRUNCATE {
        fd: op.fd,
        off: op.len,
    }
    on [op.fd, NO_FD], storage::truncate(op.fd, op.len), wants Feature::Ftruncate
}

/// Allocates or deallocates a range of a file: fallocate(2), the ring's `FALLOCATE` (5.6).
#[derive(Debug)]
pub struct Allocate {
    /// The file.
    pub fd: RawFd,
    /// 0, or `FALLOC_FL_*`.
    pub mode: i32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

forms! {
    Allocate(op): IORING_OP_FALLOCATE {
        fd: op.fd,
        off: op.offset,
        addr: op.len,
        len: op.mode as u32,
    }
    on [op.fd, NO_FD], storage::allocate(op.fd, op.mode, op.offset, op.len)
}

/// Completes once the file is on disk: fsync(2), fdatasync(2), the ring's `FSYNC` (5.1). Does not
/// wait for writes in flight.
#[derive(Debug)]
pub struct Fsync {
    /// The file.
    pub fd: RawFd,
    /// Skips metadata that reading the data back does not need.
    pub data_only: bool,
}

forms! {
    Fsync(op): IORING_OP_FSYNC {
        fd: op.fd,
        op_flags: if op.data_only { abi::IORING_FSYNC_DATASYNC } else { 0 },
    }
    on [op.fd, NO_FD], storage::sync(op.fd, op.data_only)
}
