//! Wait for connections at a listener shared with other processes or loops: a poll, after which
//! accept(2) takes them. Also for other descriptors that their owner may close without notice.
//!
//! A multishot accept waits exclusively: of several rings on one listener only the first would get
//! connections, even while its process hangs. And a ring keeps the files of operations in flight: those
//! of a killed process are closed by a kernel worker, some milliseconds after the process was reaped.
//! So the ring polls an epoll set that holds the listener, because a set keeps no file: the port is
//! free as soon as the process, or its owner, has closed the listener, and the peer of a connection sees
//! its end.

use super::operation::{Need, Operation, Shape};
use super::poll::ready_now;
use crate::choice::Kind;
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::interest::Interest;
use crate::sys::selector::{Selector, Trigger};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// Completes when connections arrive, until it is cancelled; each result is a poll(2) mask.
#[derive(Debug)]
pub struct PollListener {
    fd: RawFd,
    interest: Interest,
    /// The set that the ring polls. Closed with the operation, which names it.
    set: Option<Selector>,
    level: bool,
}

impl PollListener {
    /// Polls the listener `fd` on a driver of this kind. On the ring that takes a descriptor;
    /// without one the listener itself is polled, and stays open until the ring is closed.
    ///
    /// With `level` it completes while connections are waiting. Without, the ring may report each change
    /// only once, and submits nothing in between: accept until `EAGAIN`, or submit another poll.
    pub fn new(fd: RawFd, kind: Kind, level: bool) -> Self {
        Self::of_interest(fd, Interest::READ, kind, level)
    }

    /// As [`PollListener::new`], for any descriptor that epoll(7) takes, and what it is to be ready for.
    pub fn of_interest(fd: RawFd, interest: Interest, kind: Kind, level: bool) -> Self {
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

impl Operation for PollListener {
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

    fn shape(&self) -> Shape {
        if self.level { Shape::Level } else { Shape::Edge }
    }
}
