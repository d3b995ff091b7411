//! Wait until a descriptor is ready: poll(2) as an operation, once or level-triggered.

use super::operation::{Completable, Ended, Need, Operation, Shape};
use crate::sys::file;
use crate::sys::interest::Interest;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

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
