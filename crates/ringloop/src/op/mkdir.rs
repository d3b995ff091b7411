//! Create a directory: mkdirat(2), the ring's `MKDIRAT` (5.15).
//!
//! Readiness form: on a pool thread.

use super::operation::{NO_FD, Need, Operation};
use crate::sys::path;
use crate::sys::uring::abi::{self, Sqe};
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

/// Creates a directory.
#[derive(Debug)]
pub struct MakeDir {
    /// Base of a relative path: a directory, or [`path::HERE`].
    pub dir: RawFd,
    /// The path.
    pub path: CString,
    /// Permissions, before the umask.
    pub mode: u32,
}

impl Operation for MakeDir {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_MKDIRAT;
        sqe.fd = self.dir;
        sqe.addr = self.path.as_ptr() as u64;
        sqe.len = self.mode;
    }

    fn need(&self) -> Need {
        Need::Pool([self.dir, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        path::make_dir(self.dir, &self.path, self.mode).map(|()| 0)
    }
}
