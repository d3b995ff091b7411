//! Report each change of a descriptor's readiness: the ring's multishot poll (kernel 5.13), or
//! epoll's edge trigger.

use super::operation::{Need, Operation, Shape};
use crate::sys::file;
use crate::sys::interest::Interest;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// Completes when the descriptor is or becomes ready, until it fails or is cancelled. Each result
/// is a poll(2) mask of the requested directions; an error or a hang-up counts as both.
///
/// Edge-triggered: a completion may be the only one for all queued data, so read until `EAGAIN`.
/// Spurious completions are possible: for data read meanwhile, and on the readiness driver while
/// another operation waits for the descriptor.
#[derive(Debug)]
pub struct PollMulti {
    /// The descriptor; it stays open until the operation's last completion.
    pub fd: RawFd,
    /// What to wait for.
    pub interest: Interest,
}

impl Operation for PollMulti {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_POLL_ADD;
        sqe.fd = self.fd;
        sqe.len = abi::IORING_POLL_ADD_MULTI;
        sqe.op_flags = self.interest.poll_mask();
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, self.interest)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let ready = file::poll_now(self.fd, self.interest)?;
        if ready == Interest::NONE {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(ready.poll_mask())
        }
    }

    /// The ring reports every bit of poll(2): keep the requested ones.
    fn finish(&mut self, result: i32) -> i32 {
        match u32::try_from(result) {
            Ok(mask) => (Interest::from_poll_mask(mask) & self.interest).poll_mask() as i32,
            Err(_) => result,
        }
    }

    fn shape(&self) -> Shape {
        Shape::Edge
    }
}
