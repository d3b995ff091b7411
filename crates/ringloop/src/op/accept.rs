//! Take connections off a listener: accept4(2), or the ring's multishot accept (kernel 5.19).

use super::{Need, Operation, Request, Shape};
use crate::op::{Kind, Outcome};
use crate::sys::interest::Interest;
use crate::sys::uring::abi::{self, Sqe};
use crate::sys::{file, socket};
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// A new connection's descriptor, close-on-exec and non-blocking, is the result.
#[derive(Debug)]
pub struct Accept {
    /// The listening socket.
    pub fd: RawFd,
    /// Go on after the first connection, until an error or a cancel.
    pub multi: bool,
}

impl Operation for Accept {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::OP_ACCEPT;
        sqe.fd = self.fd;
        sqe.op_flags = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u32;
        // The multishot flag of accept lives in `ioprio`, not in `accept_flags`.
        sqe.ioprio = if self.multi { abi::ACCEPT_MULTISHOT } else { 0 };
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        socket::accept(self.fd).map(|fd| fd.into_raw_fd() as u32)
    }

    fn shape(&self) -> Shape {
        if self.multi {
            Shape::Multi
        } else {
            Shape::Once
        }
    }

    fn discard(&mut self, result: i32) {
        if result >= 0 {
            // The peer sees a reset or an end of stream; there is nobody to report an error to.
            drop(file::close(result));
        }
    }
}

impl Kind for Accept {
    type Output = io::Result<OwnedFd>;

    fn into_request(self) -> Request {
        // A future takes one completion; connections past it would be closed.
        Request::Accept(Self {
            multi: false,
            ..self
        })
    }

    fn output(outcome: Outcome) -> Self::Output {
        // SAFETY: a successful accept yields a descriptor that nobody else knows.
        outcome
            .result
            .map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}
