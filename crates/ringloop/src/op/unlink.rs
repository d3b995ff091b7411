//! Remove a name, or an empty directory: unlinkat(2), the ring's `UNLINKAT` (5.11).
//!
//! Readiness form: on a pool thread.

use super::operation::{NO_FD, Need, Operation};
use crate::sys::path;
use crate::sys::uring::abi::{self, Sqe};
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

/// Removes a file's name.
#[derive(Debug)]
pub struct Unlink {
    /// Base of a relative path: a directory, or [`path::HERE`].
    pub dir: RawFd,
    /// The path.
    pub path: CString,
    /// `AT_REMOVEDIR` removes an empty directory instead of a file.
    pub flags: i32,
}

impl Operation for Unlink {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_UNLINKAT;
        sqe.fd = self.dir;
        sqe.addr = self.path.as_ptr() as u64;
        sqe.op_flags = self.flags as u32;
    }

    fn need(&self) -> Need {
        Need::Pool([self.dir, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        path::unlink(self.dir, &self.path, self.flags).map(|()| 0)
    }
}
