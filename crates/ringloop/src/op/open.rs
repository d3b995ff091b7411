//! Open a file: openat(2), the ring's `OPENAT` (5.6).
//!
//! Readiness form: on a pool thread. Opening a FIFO blocks until its other end is opened; only on
//! the ring can that be cancelled.
//!
//! The ring first tries an `OPENAT` inline, with `O_NONBLOCK` added: a FIFO would open for reading
//! before it has a writer, and fail with `ENXIO` for writing before it has a reader. So an open that
//! may block goes to a worker of the kernel at once (`IOSQE_ASYNC`); `fs::open_file` first opens
//! without the ring what is cached.

use super::operation::{Completable, Ended, NO_FD, Need, Operation, YieldsDescriptor};
use crate::sys::fd::{IntoRawFd, OwnedFd, RawFd};
use crate::sys::libc;
use crate::sys::platform::O_PATH;
use crate::sys::uring::abi::{self, Sqe};
use crate::sys::{file, path};
use std::ffi::CString;
use std::io;

/// Flags with which no open waits for another process.
const NEVER_BLOCKS: i32 = libc::O_NONBLOCK | libc::O_DIRECTORY | O_PATH;

/// The result is the file's descriptor.
#[derive(Debug)]
pub struct Open {
    /// Base of a relative path: a directory, or [`path::HERE`].
    pub dir: RawFd,
    /// The path.
    pub path: CString,
    /// `O_*`; `O_CLOEXEC` is not added.
    pub flags: i32,
    /// Permissions of a new file, before the umask.
    pub mode: u32,
}

impl Operation for Open {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_OPENAT;
        sqe.fd = self.dir;
        sqe.addr = self.path.as_ptr() as u64;
        sqe.len = self.mode;
        sqe.op_flags = self.flags as u32;
        if self.flags & NEVER_BLOCKS == 0 {
            sqe.flags |= abi::IOSQE_ASYNC;
        }
    }

    fn need(&self) -> Need {
        Need::Pool([self.dir, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        let fd = path::open(self.dir, &self.path, self.flags, self.mode)?;
        Ok(fd.into_raw_fd() as u32)
    }

    fn discard(&mut self, result: i32) {
        if result >= 0 {
            // Nothing was written through it, so no error is lost.
            drop(file::close(result));
        }
    }
}

impl YieldsDescriptor for Open {}

impl Completable for Open {
    type Output = io::Result<OwnedFd>;

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.into_descriptor()
    }
}
