//! Copy bytes from one pipe to another without taking them: tee(2), the ring's `TEE` (5.8).
//!
//! The ring runs it on a kernel thread, which blocks like tee(2), or returns `EAGAIN` if a pipe is
//! non-blocking. Readiness form: waits for one end after the other, then tees without waiting.

use super::operation::{Completable, Ended, Need, Operation};
use super::splice::{not_ready, unless_interrupted};
use crate::sys::interest::Interest;
use crate::sys::storage;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// The result is the number of bytes, 0 at the end of the input. Both ends are pipes.
#[derive(Debug)]
pub struct Tee {
    from: RawFd,
    to: RawFd,
    len: u32,
    /// Readiness form: the end that is not ready, after a try.
    waits_for: Option<(RawFd, Interest)>,
}

impl Tee {
    /// Copies at most `len` bytes.
    pub fn new(from: RawFd, to: RawFd, len: u32) -> Self {
        Self { from, to, len, waits_for: None }
    }
}

impl Operation for Tee {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_TEE;
        sqe.fd = self.to;
        sqe.splice_fd_in = self.from;
        sqe.len = self.len;
    }

    fn need(&self) -> Need {
        match self.waits_for {
            Some((fd, interest)) => Need::Ready(fd, interest),
            None => Need::Pool([self.from, self.to]),
        }
    }

    /// On the ring it waits for both ends, and its entry names both.
    fn forget_attempt(&mut self) {
        self.waits_for = None;
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        u32::try_from(result) != Ok(self.len)
    }

    fn finish(&mut self, result: i32) -> i32 {
        unless_interrupted(result)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        self.waits_for = not_ready(self.from, self.to)?;
        if self.waits_for.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let flags = libc::SPLICE_F_NONBLOCK;
        let shown = storage::tee(self.from, self.to, self.len as usize, flags)?;
        Ok(shown as u32)
    }
}

impl Completable for Tee {
    type Output = io::Result<usize>;

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.result.map(|count| count as usize)
    }
}
