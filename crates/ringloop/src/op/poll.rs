//! Wait until a descriptor is ready: poll(2) as an operation, once or level-triggered, or for each
//! change: the ring's multishot poll (kernel 5.13), or epoll's edge trigger.

use super::operation::{Completable, Ended, Need, Operation, Shape};
use crate::sys::fd::RawFd;
use crate::sys::file;
use crate::sys::interest::Interest;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Readiness of a descriptor. The result is a poll(2) mask of the requested directions; an error or
/// a hang-up counts as both.
#[derive(Debug)]
pub struct Poll {
    /// The descriptor; it stays open until the operation's last completion.
    pub fd: RawFd,
    /// What to wait for.
    pub interest: Interest,
    /// Level-triggered multishot: completes while the descriptor is ready, until it is cancelled.
    /// The ring's own multishot poll is edge-triggered, so this is a single-shot poll that the
    /// driver re-arms after each completion was handled.
    pub level: bool,
}

impl Operation for Poll {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_POLL_ADD;
        sqe.fd = self.fd;
        sqe.op_flags = self.interest.poll_mask();
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, self.interest)
    }

    fn is_borrowed(&self) -> bool {
        self.level
    }

    fn attempt(&mut self) -> io::Result<u32> {
        ready_now(self.fd, self.interest)
    }

    fn finish(&mut self, result: i32) -> i32 {
        requested(result, self.interest)
    }

    fn shape(&self) -> Shape {
        if self.level { Shape::Level } else { Shape::Once }
    }
}

impl Completable for Poll {
    type Output = io::Result<Interest>;

    fn single(self) -> Self {
        // A future takes one completion.
        Self { level: false, ..self }
    }

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.result.map(Interest::from_poll_mask)
    }
}

/// Completes when the descriptor is or becomes ready, until it fails or is cancelled. Each result
/// is a poll(2) mask of the requested directions; an error or a hang-up counts as both.
///
/// Edge-triggered: a completion may be the only one for all queued data, so read until `EAGAIN`.
/// Spurious completions are possible: for data read meanwhile, and on the readiness driver while
/// another operation waits for the descriptor. On Windows also whenever its future is polled again and
/// the descriptor is ready; a handler is told as long as it is.
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
        ready_now(self.fd, self.interest)
    }

    fn finish(&mut self, result: i32) -> i32 {
        requested(result, self.interest)
    }

    fn shape(&self) -> Shape {
        Shape::Edge
    }
}

/// The system call: what is ready now, as a mask.
pub(super) fn ready_now(fd: RawFd, interest: Interest) -> io::Result<u32> {
    match file::poll_now(fd, interest)? {
        Interest::NONE => Err(io::ErrorKind::WouldBlock.into()),
        ready => Ok(ready.poll_mask()),
    }
}

/// The ring reports every bit of poll(2): keeps the requested ones.
fn requested(result: i32, interest: Interest) -> i32 {
    match u32::try_from(result) {
        Ok(mask) => (Interest::from_poll_mask(mask) & interest).poll_mask() as i32,
        Err(_) => result,
    }
}
