//! Peek at a socket's data: recv(2) with `MSG_PEEK`; the bytes stay queued.

use super::operation::{Need, Operation, counted};
use super::recv;
use crate::buf::RecvBuf;
use crate::sys::interest::Interest;
use crate::sys::socket;
use crate::sys::uring::abi::Sqe;
use std::io;
use std::os::fd::RawFd;

/// One peek; the result is the number of bytes, 0 at the end of the stream.
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
        recv::prepare(self.fd, &mut self.buf, sqe);
        sqe.op_flags = libc::MSG_PEEK as u32;
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        let count = socket::recv(self.fd, self.buf.as_uninit(), flags)?;
        Ok(count as u32)
    }

    fn finish(&mut self, result: i32) -> i32 {
        self.buf.finish(result)
    }
}

counted!(Peek, RecvBuf, |op| op.buf);
