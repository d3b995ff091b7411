//! Create a symbolic link: symlinkat(2), the ring's `SYMLINKAT` (5.15).
//!
//! Readiness form: on a pool thread.

use super::operation::{NO_FD, Need, Operation};
use crate::sys::path;
use crate::sys::uring::abi::{self, Sqe};
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

/// Creates a symbolic link.
#[derive(Debug)]
pub struct Symlink {
    /// The link's target; it need not exist.
    pub target: CString,
    /// Base of a relative path: a directory, or [`path::HERE`].
    pub dir: RawFd,
    /// The link's path.
    pub path: CString,
}

impl Operation for Symlink {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_SYMLINKAT;
        sqe.fd = self.dir;
        sqe.addr = self.target.as_ptr() as u64;
        sqe.off = self.path.as_ptr() as u64;
    }

    fn need(&self) -> Need {
        Need::Pool([self.dir, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        path::symlink(&self.target, self.dir, &self.path).map(|()| 0)
    }
}
