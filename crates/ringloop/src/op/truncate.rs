//! Set a file's length: ftruncate(2), the ring's `FTRUNCATE` (6.9).
//!
//! Readiness form: on a pool thread. Rings before 6.9 have no such entry; there the driver makes
//! the system call itself, which waits at most for the file system's journal.

use super::operation::{NO_FD, Need, Operation};
use crate::sys::storage;
use crate::sys::uring::Feature;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// Truncates a file, or extends it by a hole.
#[derive(Debug)]
pub struct Truncate {
    /// The file.
    pub fd: RawFd,
    /// Bytes.
    pub len: u64,
}

impl Operation for Truncate {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_FTRUNCATE;
        sqe.fd = self.fd;
        sqe.off = self.len;
    }

    fn wants(&self) -> Option<Feature> {
        Some(Feature::Ftruncate)
    }

    fn need(&self) -> Need {
        Need::Pool([self.fd, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        storage::truncate(self.fd, self.len).map(|()| 0)
    }
}
