//! Allocate or deallocate a file's space: fallocate(2), the ring's `FALLOCATE` (5.6).
//!
//! Readiness form: on a pool thread.

use super::operation::{NO_FD, Need, Operation};
use crate::sys::storage;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// Allocates or deallocates a range of a file.
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

impl Operation for Allocate {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_FALLOCATE;
        sqe.fd = self.fd;
        sqe.off = self.offset;
        sqe.addr = self.len;
        sqe.len = self.mode as u32;
    }

    fn need(&self) -> Need {
        Need::Pool([self.fd, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        storage::allocate(self.fd, self.mode, self.offset, self.len).map(|()| 0)
    }
}
