//! Write to a pipe, or to a file at an offset: write(2), pwritev2(2), the ring's `WRITE` (5.6).
//!
//! Readiness form: to a pipe when it is writable, what it takes at once; to a file on a pool thread.

use super::operation::{Completable, Ended, NO_FD, Need, Operation};
use crate::buf::SendBuf;
use crate::sys::file;
use crate::sys::interest::Interest;
use crate::sys::storage::{self, CURRENT_POSITION};
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// Parts of a write to a pipe that one try takes: what a pipe holds by itself.
const PIPE_PARTS_MAX: usize = 16;

/// The result is the number of bytes that were written; it may be less than all.
#[derive(Debug)]
pub struct Write {
    /// The descriptor.
    pub fd: RawFd,
    /// The bytes; they come back with the completion.
    pub buf: SendBuf,
    /// Of a regular file: bytes from its start, or [`CURRENT_POSITION`]. `None` writes at the position
    /// too, and is for what can be waited for: pipes, sockets, and terminals that do not block. To those a ring
    /// writes wherever it is told to; [`File`](crate::fs::File) asks first.
    pub offset: Option<u64>,
}

impl Operation for Write {
    fn prepare(&mut self, sqe: &mut Sqe) {
        // By its address: in a link the bytes may be yet to come.
        let (ptr, len) = self.buf.as_ptr();
        sqe.opcode = abi::OP_WRITE;
        sqe.fd = self.fd;
        sqe.addr = ptr as u64;
        sqe.len = len.min(i32::MAX as usize) as u32;
        sqe.off = self.offset.unwrap_or(CURRENT_POSITION);
    }

    fn need(&self) -> Need {
        match self.offset {
            None => Need::Ready(self.fd, Interest::WRITE),
            Some(_) => Need::Pool([self.fd, NO_FD]),
        }
    }

    fn attempt(&mut self) -> io::Result<u32> {
        if self.offset.is_some() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        write_ready(self.fd, self.buf.as_slice())
    }

    fn work(&mut self) -> io::Result<u32> {
        let offset = self.offset.unwrap_or(CURRENT_POSITION);
        storage::write_at(self.fd, self.buf.as_slice(), offset).map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        let (_, len) = self.buf.as_ptr();
        usize::try_from(result) != Ok(len)
    }

    fn exposes_memory(&self) -> bool {
        true
    }
}

/// Write what a descriptor that can be waited for takes now. As for a read: a blocking one must not stop the loop.
///
/// Errors: [`io::ErrorKind::WouldBlock`]; those of write(2).
pub(super) fn write_ready(fd: RawFd, bytes: &[u8]) -> io::Result<u32> {
    if file::poll_now(fd, Interest::WRITE)? == Interest::NONE {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let written = if bytes.len() > libc::PIPE_BUF && may_wait(fd)? {
        write_parts(fd, bytes)
    } else {
        file::write(fd, bytes, None)
    };
    written.map(|count| count as u32)
}

/// Whether a write of much to what is writable waits for room.
fn may_wait(fd: RawFd) -> io::Result<bool> {
    Ok(!file::is_nonblocking(fd)? && file::kind(fd)? != file::FileKind::Memory)
}

/// Write to a writable pipe whose writes wait until everything has gone, as much as goes without waiting: a pipe that is
/// writable takes `PIPE_BUF` bytes, pipe(7).
fn write_parts(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    for part in bytes.chunks(libc::PIPE_BUF).take(PIPE_PARTS_MAX) {
        if written > 0 && file::poll_now(fd, Interest::WRITE)? == Interest::NONE {
            break;
        }
        match file::write(fd, part, None) {
            Ok(count) => written += count,
            Err(error) if written == 0 => return Err(error),
            // The next write tells it.
            Err(_) => break,
        }
    }
    Ok(written)
}

impl Completable for Write {
    type Output = (io::Result<usize>, SendBuf);

    fn complete(ended: Ended<Self>) -> Self::Output {
        ended.count_and(|write| write.buf)
    }
}
