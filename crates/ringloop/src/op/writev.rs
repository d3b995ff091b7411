//! Write several buffers to a file as one: pwritev2(2), the ring's `WRITEV` (5.1).
//!
//! Readiness form: on a pool thread.

use super::operation::{NO_FD, Need, Operation, counted};
use super::vector::Vector;
use crate::buf::SendBuf;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// The result is the number of bytes written, possibly not all.
#[derive(Debug)]
pub struct WriteV {
    fd: RawFd,
    offset: u64,
    vector: Vector<SendBuf>,
}

impl WriteV {
    /// Writes at `offset` bytes from the start, or at
    /// [`CURRENT_POSITION`](crate::sys::storage::CURRENT_POSITION); buffers past `IOV_MAX` stay
    /// unwritten.
    pub fn new(fd: RawFd, bufs: Vec<SendBuf>, offset: u64) -> Self {
        let vector = Vector::new(bufs);
        Self { fd, offset, vector }
    }

    /// The buffers that were written.
    pub fn into_bufs(self) -> Vec<SendBuf> {
        self.vector.into_bufs()
    }
}

impl Operation for WriteV {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        self.vector.prepare(abi::IORING_OP_WRITEV, self.fd, self.offset, sqe);
    }

    fn need(&self) -> Need {
        Need::Pool([self.fd, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        let (fd, offset) = (self.fd, self.offset);
        self.vector.write(fd, offset).map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        usize::try_from(result) != Ok(self.vector.len())
    }
}

counted!(WriteV, Vec<SendBuf>, WriteV::into_bufs);
