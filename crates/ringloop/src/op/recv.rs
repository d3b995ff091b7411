//! Receive from a socket: recv(2) into the request's own buffer, or again and again into buffers of
//! the loop's pool (the ring's multishot receive, kernel 6.0).
//!
//! Byte path: from `driver::uring` (a completion with a pool buffer) or `driver::readiness` (a ready
//! descriptor) to the sink's [`crate::driver::Event`].

use super::operation::{Completable, Ended, Need, Operation, Shape};
use crate::buf::PoolKind;
use crate::buf::RecvBuf;
use crate::sys::interest::Interest;
use crate::sys::socket;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// One receive; the result is the number of bytes, 0 at the end of the stream.
#[derive(Debug)]
pub struct Recv {
    /// The socket.
    pub fd: RawFd,
    /// Where the bytes go; it comes back with the completion.
    pub buf: RecvBuf,
}

impl Recv {
    /// Receive into the room of `buf` what is there, by the system call.
    pub(crate) fn now(fd: RawFd, buf: RecvBuf) -> (io::Result<usize>, Vec<u8>) {
        let mut recv = Self { fd, buf };
        let received = recv.attempt();
        let count = received.as_ref().map_or(0, |count| *count as i32);
        recv.finish(count);
        (received.map(|count| count as usize), recv.buf.into_vec())
    }
}

/// Name the room of `buf` in an entry of a receive.
#[inline]
pub(super) fn prepare(fd: RawFd, buf: &mut RecvBuf, sqe: &mut Sqe) {
    let (ptr, capacity) = buf.as_mut_ptr();
    sqe.opcode = abi::OP_RECV;
    sqe.fd = fd;
    sqe.addr = ptr as u64;
    sqe.len = capacity.min(i32::MAX as usize) as u32;
}

impl Operation for Recv {
    #[inline]
    fn prepare(&mut self, sqe: &mut Sqe) {
        prepare(self.fd, &mut self.buf, sqe);
    }

    #[inline]
    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let count = socket::recv(self.fd, self.buf.as_uninit(), libc::MSG_DONTWAIT)?;
        Ok(count as u32)
    }

    #[inline]
    fn finish(&mut self, result: i32) -> i32 {
        self.buf.finish(result)
    }

    fn exposes_memory(&self) -> bool {
        true
    }
}

impl Completable for Recv {
    type Output = (io::Result<usize>, RecvBuf);

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.count_and(|recv| recv.buf)
    }
}

/// Receives until the stream ends, fails or is cancelled; each completion carries a pool buffer.
#[derive(Debug)]
pub struct RecvMulti {
    fd: RawFd,
    rearms: bool,
    pool: PoolKind,
}

impl RecvMulti {
    /// Receive from a socket that stays open until the operation's last completion.
    pub fn new(fd: RawFd) -> Self {
        Self {
            fd,
            rearms: true,
            pool: PoolKind::Streams,
        }
    }

    /// Receive from a socket that others may close, and whose number may be somebody else's by then.
    /// The kernel holds on to the file while the operation is armed; where it has ended it, the ring
    /// driver does not name the number again but completes without `more`: with the bytes, or with
    /// `-ENOBUFS` once buffers are back. Whoever submitted it looks at the socket and submits again.
    pub fn lent(fd: RawFd) -> Self {
        Self {
            rearms: false,
            ..Self::new(fd)
        }
    }

    /// Receive into `pool`, which the driver has ([`crate::driver::Driver::receive_pool`]). Only for futures.
    pub(crate) fn into_pool(fd: RawFd, pool: PoolKind) -> Self {
        Self {
            pool,
            ..Self::new(fd)
        }
    }
}

impl Operation for RecvMulti {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::OP_RECV;
        sqe.fd = self.fd;
        sqe.flags = abi::SQE_BUFFER_SELECT;
        sqe.ioprio = abi::RECV_MULTISHOT;
        if self.pool == PoolKind::Bundles {
            sqe.ioprio |= abi::RECVSEND_BUNDLE;
        }
        sqe.buf_index = self.pool.group();
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    /// The readiness driver owns the pool, so it makes the call itself.
    fn attempt(&mut self) -> io::Result<u32> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn shape(&self) -> Shape {
        Shape::MultiBuffer(self.pool)
    }

    fn rearms(&self) -> bool {
        self.rearms
    }

    fn exposes_memory(&self) -> bool {
        true
    }
}
