//! Receive from a socket: recv(2) into the request's own buffer, or into buffers of the loop's pool,
//! once or multishot (kernel 6.0).
//!
//! Byte path: from `driver::uring` (a completion with a pool buffer) or `driver::readiness` (a ready
//! descriptor, for which the driver owns the pool and makes the call) to the sink's
//! [`crate::driver::Event`], or to `executor::RecvInto`, which copies the bytes out of the buffer.

use super::operation::{Need, Operation, Shape, counted};
use crate::buf::PoolKind;
use crate::buf::RecvBuf;
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::socket;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// One receive; the result is the number of bytes, 0 at the end of the stream.
#[derive(Debug)]
pub struct Recv {
    /// The socket.
    pub fd: RawFd,
    /// Where the bytes go; returned with the completion.
    pub buf: RecvBuf,
}

impl Recv {
    /// Receives into the room of `buf` by the system call, without waiting.
    pub(crate) fn now(fd: RawFd, buf: RecvBuf) -> (io::Result<usize>, Vec<u8>) {
        let mut recv = Self { fd, buf };
        let received = recv.attempt();
        let count = received.as_ref().map_or(0, |count| *count as i32);
        recv.finish(count);
        (received.map(|count| count as usize), recv.buf.into_vec())
    }
}

/// Receives into the room of `buf`, without waiting.
fn receive(fd: RawFd, buf: &mut RecvBuf, flags: i32) -> io::Result<u32> {
    socket::recv(fd, buf.as_uninit(), flags | libc::MSG_DONTWAIT).map(|count| count as u32)
}

/// Fills the entry of a receive with the room of `buf`.
#[inline]
fn prepare(fd: RawFd, buf: &mut RecvBuf, sqe: &mut Sqe) {
    let (ptr, capacity) = buf.as_mut_ptr();
    sqe.opcode = abi::IORING_OP_RECV;
    sqe.fd = fd;
    sqe.addr = ptr as u64;
    sqe.len = capacity.min(i32::MAX as usize) as u32;
}

impl Operation for Recv {
    const EXPOSES_MEMORY: bool = true;

    #[inline]
    fn prepare(&mut self, sqe: &mut Sqe) {
        prepare(self.fd, &mut self.buf, sqe);
    }

    #[inline]
    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        receive(self.fd, &mut self.buf, 0)
    }

    #[inline]
    fn finish(&mut self, result: i32) -> i32 {
        self.buf.finish(result)
    }
}

counted!(Recv, RecvBuf, |op| op.buf);

/// One receive of bytes that stay queued (`MSG_PEEK`); the result as that of [`Recv`].
#[derive(Debug)]
pub struct Peek {
    /// The socket.
    pub fd: RawFd,
    /// Where the bytes are copied to; returned with the completion.
    pub buf: RecvBuf,
}

impl Operation for Peek {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        prepare(self.fd, &mut self.buf, sqe);
        sqe.op_flags = libc::MSG_PEEK as u32;
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        receive(self.fd, &mut self.buf, libc::MSG_PEEK)
    }

    fn finish(&mut self, result: i32) -> i32 {
        self.buf.finish(result)
    }
}

counted!(Peek, RecvBuf, |op| op.buf);

/// Receives until the stream ends, fails or is cancelled; each completion carries a pool buffer.
#[derive(Debug)]
pub struct RecvMulti {
    fd: RawFd,
    rearms: bool,
    pool: PoolKind,
}

impl RecvMulti {
    /// Receives from a socket that stays open until the operation's last completion.
    pub fn new(fd: RawFd) -> Self {
        Self { fd, rearms: true, pool: PoolKind::Streams }
    }

    /// Receives from a socket that may be closed by another owner, and its number reused. While the
    /// operation is armed the kernel holds the file; once it has ended, the ring driver does not
    /// re-arm by the number but completes without `more`: with the bytes, or with `-ENOBUFS` once
    /// buffers are back. The owner then checks the socket and submits again.
    pub fn borrowed(fd: RawFd) -> Self {
        Self { rearms: false, ..Self::new(fd) }
    }

    /// Receives into `pool`, which the driver must have ([`crate::driver::Driver::receive_pool`]).
    /// Only for futures.
    pub(crate) fn into_pool(fd: RawFd, pool: PoolKind) -> Self {
        Self { pool, ..Self::new(fd) }
    }
}

impl Operation for RecvMulti {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_RECV;
        sqe.fd = self.fd;
        sqe.flags = abi::IOSQE_BUFFER_SELECT;
        sqe.ioprio = abi::IORING_RECV_MULTISHOT;
        if self.pool == PoolKind::Bundles {
            sqe.ioprio |= abi::IORING_RECVSEND_BUNDLE;
        }
        sqe.buf_index = self.pool.group();
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn shape(&self) -> Shape {
        Shape::MultiBuffer(self.pool)
    }

    fn rearms(&self) -> bool {
        self.rearms
    }
}

/// A single receive, which holds no memory while it waits; its completion carries a pool buffer if
/// the result is not 0.
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

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn shape(&self) -> Shape {
        Shape::OnceBuffer(PoolKind::Singles)
    }
}
