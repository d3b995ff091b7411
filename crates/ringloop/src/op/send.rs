//! Send one buffer: send(2), without SIGPIPE. At most one send per stream is in flight.

use super::operation::{Need, Operation, counted};
use crate::buf::SendBuf;
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::socket;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// The result is the number of bytes sent, possibly not all. For datagrams use
/// [`super::SendDatagram`].
#[derive(Debug)]
pub struct Send {
    /// The socket.
    pub fd: RawFd,
    /// The bytes; returned with the completion.
    pub buf: SendBuf,
}

impl Operation for Send {
    const EXPOSES_MEMORY: bool = true;

    #[inline]
    fn prepare(&mut self, sqe: &mut Sqe) {
        let bytes = self.buf.as_slice();
        sqe.opcode = abi::IORING_OP_SEND;
        sqe.fd = self.fd;
        sqe.addr = bytes.as_ptr() as u64;
        sqe.len = bytes.len().min(i32::MAX as usize) as u32;
        // With MSG_WAITALL the kernel finishes a short send itself.
        sqe.op_flags = (platform::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
    }

    #[inline]
    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::WRITE)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        socket::send(self.fd, self.buf.as_slice(), libc::MSG_DONTWAIT).map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        usize::try_from(result) != Ok(self.buf.len())
    }
}

counted!(Send, SendBuf, |op| op.buf);
