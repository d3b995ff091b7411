//! Create a hard link: linkat(2), the ring's `LINKAT` (5.15).
//!
//! Readiness form: on a pool thread.

use super::operation::{Need, Operation};
use crate::sys::path;
use crate::sys::uring::abi::{self, Sqe};
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

/// Creates a hard link.
#[derive(Debug)]
pub struct HardLink {
    /// The existing name, relative to a directory or [`path::HERE`].
    pub from: (RawFd, CString),
    /// The new name, likewise.
    pub to: (RawFd, CString),
    /// `AT_SYMLINK_FOLLOW`, `AT_EMPTY_PATH`.
    pub flags: i32,
}

impl Operation for HardLink {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_LINKAT;
        sqe.fd = self.from.0;
        sqe.addr = self.from.1.as_ptr() as u64;
        sqe.len = self.to.0 as u32;
        sqe.off = self.to.1.as_ptr() as u64;
        sqe.op_flags = self.flags as u32;
    }

    fn need(&self) -> Need {
        Need::Pool([self.from.0, self.to.0])
    }

    fn work(&mut self) -> io::Result<u32> {
        let (from, to) = ((self.from.0, &*self.from.1), (self.to.0, &*self.to.1));
        path::hard_link(from, to, self.flags).map(|()| 0)
    }
}
