//! Send several buffers in one call: sendmsg(2), without SIGPIPE.

use super::operation::{Need, Operation, counted};
use super::vector::{name_all, send_all_now};
use crate::buf::SendBuf;
use crate::sys::address::SockAddr;
use crate::sys::interest::Interest;
use crate::sys::socket::empty_message;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// The result is the number of bytes sent, possibly not all. For datagrams use
/// [`super::SendDatagram`].
#[derive(Debug)]
pub struct SendMsg {
    fd: RawFd,
    // Boxed so that a request stays small; the header points at the iovec next to it.
    parts: Box<Parts>,
}

#[derive(Debug)]
struct Parts {
    bufs: Vec<SendBuf>,
    to: Option<SockAddr>,
    iovecs: Vec<libc::iovec>,
    header: libc::msghdr,
}

impl SendMsg {
    /// Sends `bufs` in order; buffers past `IOV_MAX` stay unsent.
    pub fn new(fd: RawFd, bufs: Vec<SendBuf>) -> Self {
        Self::with(fd, bufs, None)
    }

    /// Sends `bufs` as one datagram to `to`.
    pub(super) fn to(fd: RawFd, bufs: Vec<SendBuf>, to: SockAddr) -> Self {
        Self::with(fd, bufs, Some(to))
    }

    fn with(fd: RawFd, bufs: Vec<SendBuf>, to: Option<SockAddr>) -> Self {
        let header = empty_message();
        Self { fd, parts: Box::new(Parts { bufs, to, iovecs: Vec::new(), header }) }
    }

    /// The buffers that were sent.
    pub fn into_bufs(self) -> Vec<SendBuf> {
        self.parts.bufs
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    fn header(&mut self) -> *const libc::msghdr {
        let parts = &mut *self.parts;
        name_all(&parts.bufs, &mut parts.iovecs);
        if let Some(to) = &parts.to {
            parts.header.msg_name = to.as_ptr().cast_mut().cast();
            parts.header.msg_namelen = to.len();
        }
        parts.header.msg_iov = parts.iovecs.as_mut_ptr();
        parts.header.msg_iovlen = parts.iovecs.len() as _;
        &raw const parts.header
    }
}

impl Operation for SendMsg {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_SENDMSG;
        sqe.fd = self.fd;
        sqe.addr = self.header() as u64;
        sqe.len = 1;
        sqe.op_flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::WRITE)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let parts = &mut *self.parts;
        let sent = send_all_now(self.fd, &parts.bufs, parts.to.as_ref(), &mut parts.iovecs);
        sent.map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        let parts = &*self.parts;
        let asked: usize = parts.bufs.iter().map(SendBuf::len).sum();
        usize::try_from(result) != Ok(asked)
    }
}

counted!(SendMsg, Vec<SendBuf>, SendMsg::into_bufs);
