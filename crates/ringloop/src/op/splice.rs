//! Move bytes between a pipe and a descriptor without a copy: splice(2), the ring's `SPLICE` (5.7); or
//! copy them from one pipe to another without taking them: tee(2), the ring's `TEE` (5.8).
//!
//! The ring runs both on a kernel thread, which blocks like the system call, or returns `EAGAIN` if a
//! descriptor is non-blocking. Readiness form: waits for one end after the other, then makes the call
//! without waiting; a splice on a pool thread if an end is a file on a disk.

use super::operation::{Completable, Ended, Need, Operation};
use crate::sys::fd::RawFd;
use crate::sys::file::{self, FileKind};
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::storage::{self, CURRENT_POSITION};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// The result is the number of bytes, 0 at the end of the input. One end is a pipe.
#[derive(Debug)]
pub struct Splice {
    from: (RawFd, Option<u64>),
    to: (RawFd, Option<u64>),
    len: u32,
    /// Readiness form: the end that is not ready, after a try.
    waits_for: Option<(RawFd, Interest)>,
}

impl Splice {
    /// Moves at most `len` bytes; an offset of `None` is the descriptor's own position, and
    /// required for a pipe.
    pub fn new(from: (RawFd, Option<u64>), to: (RawFd, Option<u64>), len: u32) -> Self {
        Self { from, to, len, waits_for: None }
    }

    fn splice(&self) -> io::Result<u32> {
        let flags = platform::SPLICE_F_MOVE | platform::SPLICE_F_NONBLOCK;
        let moved = storage::splice(self.from, self.to, self.len as usize, flags)?;
        Ok(moved as u32)
    }
}

impl Operation for Splice {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::IORING_OP_SPLICE;
        sqe.fd = self.to.0;
        sqe.off = self.to.1.unwrap_or(CURRENT_POSITION);
        sqe.splice_fd_in = self.from.0;
        sqe.addr = self.from.1.unwrap_or(CURRENT_POSITION);
        sqe.len = self.len;
        sqe.op_flags = platform::SPLICE_F_MOVE;
    }

    fn need(&self) -> Need {
        match self.waits_for {
            Some((fd, interest)) => Need::Ready(fd, interest),
            None => Need::Pool([self.from.0, self.to.0]),
        }
    }

    fn is_borrowed(&self) -> bool {
        true
    }

    fn attempt(&mut self) -> io::Result<u32> {
        self.waits_for = not_ready(self.from.0, self.to.0)?;
        let on_disk = |fd| Ok::<_, io::Error>(file::kind(fd)? == FileKind::Other);
        if self.waits_for.is_some() || on_disk(self.from.0)? || on_disk(self.to.0)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.splice()
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

    fn work(&mut self) -> io::Result<u32> {
        self.splice()
    }
}

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

    fn is_borrowed(&self) -> bool {
        true
    }

    fn attempt(&mut self) -> io::Result<u32> {
        self.waits_for = not_ready(self.from, self.to)?;
        if self.waits_for.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let flags = platform::SPLICE_F_NONBLOCK;
        let shown = storage::tee(self.from, self.to, self.len as usize, flags)?;
        Ok(shown as u32)
    }
}

impl Completable for Splice {
    type Output = io::Result<usize>;

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.result.map(|count| count as usize)
    }
}

impl Completable for Tee {
    type Output = io::Result<usize>;

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.result.map(|count| count as usize)
    }
}

/// The kernel turns this into `EINTR` or a restart before a system call returns, but not on the
/// ring.
const ERESTARTSYS: i32 = 512;

/// The result; only a cancel interrupts a wait on a kernel thread.
fn unless_interrupted(result: i32) -> i32 {
    if result == -ERESTARTSYS { -libc::ECANCELED } else { result }
}

/// Which of two ends to wait for: the input for bytes, then the output for room. Both are polled,
/// so that an error of either shows at once.
fn not_ready(from: RawFd, to: RawFd) -> io::Result<Option<(RawFd, Interest)>> {
    let ends = [(from, Interest::READ), (to, Interest::WRITE)];
    let (has_bytes, has_room) =
        (file::poll_now(from, Interest::READ)?, file::poll_now(to, Interest::WRITE)?);
    let ready = [has_bytes, has_room];
    Ok(ends.into_iter().zip(ready).find_map(|(end, ready)| ready.is_none().then_some(end)))
}
