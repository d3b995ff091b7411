//! Flush a file to disk: fsync(2), fdatasync(2), the ring's `FSYNC` (5.1).
//!
//! Readiness form: on a pool thread.

use super::operation::{NO_FD, Need, Operation};
use crate::sys::storage;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// Completes once the file is on disk. Does not wait for writes in flight.
#[derive(Debug)]
pub struct Fsync {
    /// The file.
    pub fd: RawFd,
    /// Skips metadata that reading the data back does not need.
    pub data_only: bool,
}

impl Operation for Fsync {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_FSYNC;
        sqe.fd = self.fd;
        sqe.op_flags = if self.data_only { abi::IORING_FSYNC_DATASYNC } else { 0 };
    }

    fn need(&self) -> Need {
        Need::Pool([self.fd, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        storage::sync(self.fd, self.data_only).map(|()| 0)
    }
}
