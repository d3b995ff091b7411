//! Poll a descriptor that somebody else may close at any time: a listener shared with other processes
//! or loops, after which accept(2) takes its connections, or a file that a user watches.
//!
//! A ring keeps the files of operations in flight. A file closed under a poll stays open until the poll
//! ends: its port is not free, and its peer sees no end. Those of a killed process are closed by a kernel
//! worker, some milliseconds after the process was reaped. So the ring polls an epoll set that holds
//! the descriptor, because a set keeps no file.
//!
//! A multishot accept is no choice for a shared listener either: it waits exclusively, so of several
//! rings only the first would get connections, even while its process hangs.

use super::operation::{Need, Operation, Shape};
use super::poll::ready_now;
use crate::choice::Kind;
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::file::poll_now;
use crate::sys::interest::Interest;
use crate::sys::selector::{Selector, Trigger};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Completes when the descriptor becomes ready, until it is cancelled; each result is a poll(2) mask.
#[derive(Debug)]
pub struct PollBorrowed {
    fd: RawFd,
    interest: Interest,
    /// The set that the ring polls. Closed with the operation, which names it.
    set: Option<Selector>,
    level: bool,
}

impl PollBorrowed {
    /// Polls `fd`, which epoll(7) must take, on a driver of this kind. On the ring that takes a
    /// descriptor; without a free one `fd` itself is polled, and stays open until the poll ends.
    ///
    /// With `level` it completes while `fd` is ready. Without, the ring may report each change only
    /// once, and submits nothing in between: accept or read until `EAGAIN`, or submit another poll.
    pub fn new(fd: RawFd, interest: Interest, kind: Kind, level: bool) -> Self {
        let set = match kind {
            Kind::Uring => set_of(fd, interest).ok(),
            Kind::Epoll => None,
        };
        Self { fd, interest, level: level || set.is_none(), set }
    }

    /// Closes the set, once the ring has no use for it: the operation has ended, and may keep its slot
    /// until its last completion is taken.
    pub(crate) fn close_set(&mut self) {
        self.set = None;
    }
}

fn set_of(fd: RawFd, interest: Interest) -> io::Result<Selector> {
    let set = Selector::new()?;
    set.add(fd, interest, 0, Trigger::Level)?;
    Ok(set)
}

impl Operation for PollBorrowed {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_POLL_ADD;
        let (fd, interest) = match &self.set {
            // A set is readable while something in it is ready for anything.
            Some(set) => (set.as_raw_fd(), Interest::READ),
            None => (self.fd, self.interest),
        };
        sqe.fd = fd;
        sqe.len = if self.level { 0 } else { abi::IORING_POLL_ADD_MULTI };
        sqe.op_flags = interest.poll_mask();
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

    /// A set's waiters are also woken by what makes nothing ready, such as a shutdown of a socket's own
    /// side (`sock_def_wakeup`), and the ring takes that for readiness: only a poll of the set asks the
    /// descriptor. A callback that reads from a blocking descriptor would hang its loop.
    fn is_stale(&self) -> bool {
        let ready = self.set.as_ref().map(|set| poll_now(set.as_raw_fd(), Interest::READ));
        matches!(ready, Some(Ok(Interest::NONE)))
    }

    fn shape(&self) -> Shape {
        if self.level { Shape::Level } else { Shape::Edge }
    }
}
