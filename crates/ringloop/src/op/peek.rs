//! Look at what a socket holds: recv(2) with `MSG_PEEK`; the bytes stay there.

use super::{Need, Operation, Recv, Request};
use crate::buf::RecvBuf;
use crate::op::{Kind, Outcome};
use crate::sys::interest::Interest;
use crate::sys::socket;
use crate::sys::uring::abi::Sqe;
use std::io;
use std::os::fd::RawFd;

/// One look; the result is the number of bytes, 0 at the end of the stream.
#[derive(Debug)]
pub struct Peek {
    /// The socket.
    pub fd: RawFd,
    /// Where the bytes are copied to; it comes back with the completion.
    pub buf: RecvBuf,
}

/// A peek in flight: a receive with one more flag.
#[derive(Debug)]
pub struct Peeking(Recv);

impl Operation for Peeking {
    fn prepare(&mut self, sqe: &mut Sqe) {
        self.0.prepare(sqe);
        sqe.op_flags = libc::MSG_PEEK as u32;
    }

    fn need(&self) -> Need {
        Need::Ready(self.0.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        let count = socket::recv(self.0.fd, self.0.buf.as_uninit(), flags)?;
        Ok(count as u32)
    }

    fn finish(&mut self, result: i32) -> i32 {
        self.0.finish(result)
    }

    fn lends_memory(&self) -> bool {
        true
    }
}

impl Kind for Peek {
    type Output = (io::Result<usize>, RecvBuf);

    fn into_request(self) -> Request {
        Request::Peek(Peeking(Recv {
            fd: self.fd,
            buf: self.buf,
        }))
    }

    fn output(outcome: Outcome) -> Self::Output {
        let buf = match outcome.request {
            Some(Request::Peek(peek)) => peek.0.buf,
            _ => RecvBuf::with_capacity(0),
        };
        (outcome.result.map(|count| count as usize), buf)
    }
}
