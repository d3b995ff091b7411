//! Poll a descriptor that somebody else may close at any time: a listener shared with other processes
//! or loops, after which accept(2) takes its connections, a socket of the application, or a file that
//! a user watches.
//!
//! A ring keeps the files of operations in flight. A file closed under a poll stays open until the poll
//! ends: its port is not free, and its peer sees no end. Those of a killed process are closed by a kernel
//! worker, some milliseconds after the process was reaped. So the ring driver has an epoll set for these
//! descriptors, which keeps no file, and the ring polls the set (`driver::uring::borrowed`).
//!
//! A multishot accept is no choice for a shared listener either: it waits exclusively, so of several
//! rings only the first would get connections, even while its process hangs.

use super::operation::{Need, Operation, Shape};
use super::poll::ready_now;
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Completes when the descriptor becomes ready, until it is cancelled; each result is a poll(2) mask.
/// Where the kernel refuses the set, or the descriptor in it, the ring polls the descriptor itself.
#[derive(Debug)]
pub struct PollBorrowed {
    /// The descriptor.
    pub fd: RawFd,
    /// What to wait for.
    pub interest: Interest,
    /// How often it completes, and who polls.
    pub mode: PollMode,
}

/// The modes of a [`PollBorrowed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollMode {
    /// Completes while the descriptor is ready.
    Level,
    /// Each change may be reported only once: accept or read until `EAGAIN`, or submit another poll.
    Edge,
    /// As `Level`, for a wait that is usually over at once: at first the ring polls the descriptor
    /// itself, and may keep its file open for some milliseconds (`limits::BRIEF_POLL_MS`).
    Brief,
}

impl Operation for PollBorrowed {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_POLL_ADD;
        sqe.fd = self.fd;
        sqe.len = if self.mode == PollMode::Edge { abi::IORING_POLL_ADD_MULTI } else { 0 };
        sqe.op_flags = self.interest.poll_mask();
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, self.interest)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        ready_now(self.fd, self.interest)
    }

    fn is_borrowed(&self) -> bool {
        true
    }

    fn shape(&self) -> Shape {
        if self.mode == PollMode::Edge { Shape::Edge } else { Shape::Level }
    }
}
