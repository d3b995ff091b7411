//! Pass descriptors through a Unix socket: sendmsg(2) and recvmsg(2) with `SCM_RIGHTS`.

use super::operation::{Completable, Ended, Need, Operation};
use crate::buf::{RecvBuf, SendBuf};
use crate::sys::descriptors::Rights;
use crate::sys::fd::{OwnedFd, RawFd};
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::socket::{self, empty_message};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Sends bytes and descriptors; a stream needs at least one byte. The result is the number of bytes
/// sent; the descriptors go with the first one.
#[derive(Debug)]
pub struct SendDescriptors {
    fd: RawFd,
    // Boxed so that a request stays small; the header points at its neighbours.
    parts: Box<Outgoing>,
}

#[derive(Debug)]
struct Outgoing {
    buf: SendBuf,
    rights: Rights,
    iovec: libc::iovec,
    header: libc::msghdr,
}

/// Received descriptors.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// In the order in which they were sent.
    pub list: Vec<OwnedFd>,
    /// There were more, which were closed: the process had no room for them (`RLIMIT_NOFILE`), or
    /// they did not fit in one message. See recvmsg(2), `MSG_CTRUNC`.
    pub is_cut: bool,
}

/// Receives bytes, and the descriptors that came with them. The result is the number of bytes.
#[derive(Debug)]
pub struct RecvDescriptors {
    fd: RawFd,
    parts: Box<Incoming>,
}

#[derive(Debug)]
struct Incoming {
    buf: RecvBuf,
    rights: Rights,
    received: Descriptors,
    iovec: libc::iovec,
    header: libc::msghdr,
}

fn empty_iovec() -> libc::iovec {
    libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }
}

impl SendDescriptors {
    /// Sends `buf` with `descriptors`, at most 253.
    pub fn new(fd: RawFd, buf: SendBuf, descriptors: Vec<OwnedFd>) -> Self {
        Self {
            fd,
            parts: Box::new(Outgoing {
                buf,
                rights: Rights::carrying(descriptors),
                iovec: empty_iovec(),
                header: empty_message(),
            }),
        }
    }

    fn header(&mut self) -> *const libc::msghdr {
        let parts = &mut *self.parts;
        let bytes = parts.buf.as_slice();
        parts.iovec =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let (at, len) = parts.rights.as_mut_ptr();
        parts.header.msg_iov = &raw mut parts.iovec;
        parts.header.msg_iovlen = 1;
        parts.header.msg_control = at;
        parts.header.msg_controllen = len as _;
        &raw const parts.header
    }
}

impl RecvDescriptors {
    /// Receives into `buf`.
    pub fn new(fd: RawFd, buf: RecvBuf) -> Self {
        Self {
            fd,
            parts: Box::new(Incoming {
                buf,
                rights: Rights::empty(),
                received: Descriptors::default(),
                iovec: empty_iovec(),
                header: empty_message(),
            }),
        }
    }

    fn header(&mut self) -> *mut libc::msghdr {
        let parts = &mut *self.parts;
        let (ptr, capacity) = parts.buf.as_mut_ptr();
        parts.iovec = libc::iovec { iov_base: ptr.cast(), iov_len: capacity };
        let (at, len) = parts.rights.room();
        parts.header.msg_iov = &raw mut parts.iovec;
        parts.header.msg_iovlen = 1;
        parts.header.msg_control = at;
        parts.header.msg_controllen = len as _;
        &raw mut parts.header
    }
}

impl Operation for SendDescriptors {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_SENDMSG;
        sqe.fd = self.fd;
        sqe.addr = self.header() as u64;
        sqe.len = 1;
        // Without MSG_WAITALL: the rest of a short send would carry the descriptors again.
        sqe.op_flags = platform::MSG_NOSIGNAL as u32;
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::WRITE)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let header = self.header();
        // SAFETY: the header and all that it points at are owned by `self.parts`, which outlives
        // the call.
        unsafe { socket::sendmsg(self.fd, header, libc::MSG_DONTWAIT) }.map(|count| count as u32)
    }
}

impl Operation for RecvDescriptors {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_RECVMSG;
        sqe.fd = self.fd;
        sqe.addr = self.header() as u64;
        sqe.len = 1;
        sqe.op_flags = platform::MSG_CMSG_CLOEXEC as u32;
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let header = self.header();
        // SAFETY: the header and all that it points at are owned by `self.parts`, which outlives
        // the call.
        unsafe { socket::recvmsg(self.fd, header, libc::MSG_DONTWAIT) }.map(|count| count as u32)
    }

    /// Takes ownership of the descriptors at once, so that a dropped result closes them.
    fn finish(&mut self, result: i32) -> i32 {
        let parts = &mut *self.parts;
        parts.buf.finish(result);
        if result >= 0 {
            // The type differs between C libraries.
            let len = parts.header.msg_controllen as _;
            // SAFETY: the receive that just succeeded has written the message, and its length.
            parts.received.list = unsafe { parts.rights.take(len) };
            parts.received.is_cut = parts.header.msg_flags & libc::MSG_CTRUNC != 0;
        }
        result
    }
}

impl Completable for SendDescriptors {
    type Output = (io::Result<usize>, SendBuf, Vec<OwnedFd>);

    fn complete(ended: Ended<Self>) -> Self::Output {
        let result = ended.result.map(|count| count as usize);
        match ended.request {
            Some(send) => (result, send.parts.buf, send.parts.rights.into_sent()),
            _ => (result, Vec::new().into(), Vec::new()),
        }
    }
}

impl Completable for RecvDescriptors {
    type Output = (io::Result<usize>, RecvBuf, Descriptors);

    fn complete(ended: Ended<Self>) -> Self::Output {
        let result = ended.result.map(|count| count as usize);
        match ended.request {
            Some(recv) => (result, recv.parts.buf, recv.parts.received),
            _ => (result, RecvBuf::with_capacity(0), Descriptors::default()),
        }
    }
}
