//! Accept connections from a listener: accept4(2), or the ring's multishot accept (kernel 5.19).

use super::operation::{Completable, Ended, Need, Operation, Shape, YieldsDescriptor};
use crate::sys::fd::{IntoRawFd, OwnedFd, RawFd};
use crate::sys::interest::Interest;
use crate::sys::platform;
use crate::sys::uring::abi::{self, Sqe};
use crate::sys::{file, socket};
use std::io;

/// The result is a new connection's descriptor, close-on-exec and non-blocking.
///
/// On the ring the wait is exclusive: use it for a listener that only one loop accepts from, and
/// poll others with [`PollBorrowed`](super::PollBorrowed).
#[derive(Debug)]
pub struct Accept {
    /// The listening socket.
    pub fd: RawFd,
    /// Multishot: continues until an error or a cancel. On the readiness driver a listener that is
    /// non-blocking at first must stay so.
    pub multi: bool,
}

impl Accept {
    /// True if the system call does not block; costs a system call itself.
    pub(crate) fn is_nonblocking(&self) -> bool {
        file::is_nonblocking(self.fd).unwrap_or(false)
    }

    /// Makes the system call, which blocks if the listener is blocking.
    pub(crate) fn accept(&self) -> io::Result<u32> {
        socket::accept(self.fd).map(|fd| fd.into_raw_fd() as u32)
    }
}

impl Operation for Accept {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_ACCEPT;
        sqe.fd = self.fd;
        sqe.op_flags = (platform::SOCK_CLOEXEC | platform::SOCK_NONBLOCK) as u32;
        // The multishot flag of accept lives in `ioprio`, not in `accept_flags`.
        sqe.ioprio = if self.multi { abi::IORING_ACCEPT_MULTISHOT } else { 0 };
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        socket::accept_now(self.fd).map(|fd| fd.into_raw_fd() as u32)
    }

    fn shape(&self) -> Shape {
        if self.multi { Shape::Multi } else { Shape::Once }
    }

    fn discard(&mut self, result: i32) {
        if result >= 0 {
            // The peer sees a reset or an end of stream; there is no caller to report an error to.
            drop(file::close(result));
        }
    }
}

impl YieldsDescriptor for Accept {}

impl Completable for Accept {
    type Output = io::Result<OwnedFd>;

    fn single(self) -> Self {
        // A future takes one completion; further connections would be closed.
        Self { multi: false, ..self }
    }

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.into_descriptor()
    }
}
