//! A single receive into a buffer of the loop's pool: while it waits, it holds no memory.
//!
//! Byte path: from `driver::uring` (a completion with a pool buffer) or `driver::readiness` (a
//! ready descriptor) to `executor::RecvInto`, which copies the bytes out and returns the buffer.

use super::operation::{Need, Operation, Shape};
use crate::buf::PoolKind;
use crate::sys::interest::Interest;
use crate::sys::uring::abi::{self, Sqe};
use std::os::fd::RawFd;

/// A single receive; its completion carries a buffer if the result is not 0.
#[derive(Debug)]
pub struct RecvPooled {
    fd: RawFd,
    len_max: u32,
}

impl RecvPooled {
    /// Receives up to `len_max` bytes, at most a pool buffer.
    pub(crate) fn new(fd: RawFd, len_max: usize) -> Self {
        let buf_len = PoolKind::Singles.buffer_len();
        Self { fd, len_max: u32::try_from(len_max).map_or(buf_len, |len| len.min(buf_len)) }
    }

    /// Most bytes to receive.
    pub(crate) fn len_max(&self) -> usize {
        self.len_max as usize
    }
}

impl Operation for RecvPooled {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_RECV;
        sqe.fd = self.fd;
        sqe.len = self.len_max;
        sqe.flags = abi::IOSQE_BUFFER_SELECT;
        sqe.buf_index = PoolKind::Singles.group();
    }

    /// The readiness driver owns the pool, so it makes the call itself.
    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn shape(&self) -> Shape {
        Shape::OnceBuffer(PoolKind::Singles)
    }
}
