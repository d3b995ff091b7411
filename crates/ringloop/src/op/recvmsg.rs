//! Receive one message with its source address: recvmsg(2).

use super::operation::{Completable, Ended, Need, Operation};
use crate::buf::RecvBuf;
use crate::sys::address::SockAddr;
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::socket::{self, empty_message};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// The result is the number of bytes; a longer datagram is truncated, as in recvmsg(2).
#[derive(Debug)]
pub struct RecvMsg {
    fd: RawFd,
    parts: Box<Parts>,
}

#[derive(Debug)]
struct Parts {
    buf: RecvBuf,
    source: SockAddr,
    iovec: libc::iovec,
    header: libc::msghdr,
}

impl RecvMsg {
    /// Receives into `buf`.
    pub fn new(fd: RawFd, buf: RecvBuf) -> Self {
        let iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let header = empty_message();
        let source = SockAddr::empty();
        Self { fd, parts: Box::new(Parts { buf, source, iovec, header }) }
    }

    /// The buffer, and the source address.
    pub fn into_parts(self) -> (RecvBuf, SockAddr) {
        (self.parts.buf, self.parts.source)
    }

    fn header(&mut self) -> *mut libc::msghdr {
        let parts = &mut *self.parts;
        let (ptr, capacity) = parts.buf.as_mut_ptr();
        parts.iovec = libc::iovec { iov_base: ptr.cast(), iov_len: capacity };
        parts.header.msg_name = parts.source.as_mut_ptr().cast();
        parts.header.msg_namelen = parts.source.len();
        parts.header.msg_iov = &raw mut parts.iovec;
        parts.header.msg_iovlen = 1;
        &raw mut parts.header
    }
}

impl Operation for RecvMsg {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_RECVMSG;
        sqe.fd = self.fd;
        sqe.addr = self.header() as u64;
        sqe.len = 1;
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let parts = &mut *self.parts;
        let (room, source) = (parts.buf.as_uninit(), &mut parts.source);
        let count = socket::recv_from(self.fd, room, source, libc::MSG_DONTWAIT)?;
        parts.header.msg_namelen = source.len();
        Ok(count as u32)
    }

    fn finish(&mut self, result: i32) -> i32 {
        let parts = &mut *self.parts;
        parts.buf.finish(result);
        let len = if result < 0 { 0 } else { parts.header.msg_namelen };
        parts.source.set_len(len);
        result
    }
}

impl Completable for RecvMsg {
    /// The source address, and the buffer.
    type Output = (io::Result<SockAddr>, RecvBuf);

    fn complete(ended: Ended<Self>) -> Self::Output {
        let (buf, source) = match ended.request {
            Some(recv) => recv.into_parts(),
            _ => (RecvBuf::with_capacity(0), SockAddr::empty()),
        };
        (ended.result.map(|_| source), buf)
    }
}
