//! Wait for the end of a child process: the ring's waitid (kernel 6.7), or its pidfd's readiness. Does not reap.

use super::operation::{Need, Operation};
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::process;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Completes once the child has ended; its owner can then take its status without blocking.
#[derive(Debug)]
pub struct WaitChild {
    /// The child's pidfd.
    pub pidfd: RawFd,
}

impl Operation for WaitChild {
    fn prepare(&mut self, sqe: &mut Sqe) {
        // The fields are those of io_uring_prep_waitid(3); no siginfo is requested.
        sqe.opcode = abi::IORING_OP_WAITID;
        sqe.fd = self.pidfd;
        sqe.len = platform::P_PIDFD;
        sqe.splice_fd_in = libc::WEXITED | libc::WNOWAIT;
    }

    fn need(&self) -> Need {
        Need::Ready(self.pidfd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        if process::has_ended(self.pidfd)? { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }
}
