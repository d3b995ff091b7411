//! Read from a pipe, or from a file at an offset: read(2), preadv2(2), the ring's `READ` (5.6).
//!
//! Readiness form: from a pipe once it is readable, or at once if it is non-blocking. From a file at an offset at once if the bytes
//! are cached (`RWF_NOWAIT`), otherwise on a pool thread. The same for registered files and buffers,
//! by the ring's `READ_FIXED` (5.1).

use super::operation::{NO_FD, Need, Operation, counted};
use super::registered::{RegisteredBuf, RegisteredFd};
use crate::buf::RecvBuf;
use crate::limits::CACHED_READ_BYTES;
use crate::sys::fd::RawFd;
use crate::sys::file::{self, Room};
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::storage::{self, CURRENT_POSITION, Wait};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// The result is the number of bytes, 0 at the end of the file.
#[derive(Debug)]
pub struct Read {
    /// The descriptor.
    pub fd: RawFd,
    /// Where the bytes go; returned with the completion.
    pub buf: RecvBuf,
    /// For a regular file: bytes from its start, or [`CURRENT_POSITION`]. `None` also reads at the
    /// position, and is for pollable files: pipes, terminals, sockets. The ring does not check the
    /// kind of file; [`File`](crate::fs::File) does.
    pub offset: Option<u64>,
}

impl Operation for Read {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        let (ptr, capacity) = self.buf.as_mut_ptr();
        sqe.opcode = abi::IORING_OP_READ;
        sqe.fd = self.fd;
        sqe.addr = ptr as u64;
        sqe.len = capacity.min(i32::MAX as usize) as u32;
        sqe.off = self.offset.unwrap_or(CURRENT_POSITION);
    }

    fn need(&self) -> Need {
        match self.offset {
            None => Need::Ready(self.fd, Interest::READ),
            Some(_) => Need::Pool([self.fd, NO_FD]),
        }
    }

    fn is_borrowed(&self) -> bool {
        true
    }

    fn attempt(&mut self) -> io::Result<u32> {
        read_now(self.fd, self.buf.as_uninit().into(), self.offset)
    }

    fn work(&mut self) -> io::Result<u32> {
        let offset = self.offset.unwrap_or(CURRENT_POSITION);
        let mut room = self.buf.as_uninit().into();
        storage::read_at(self.fd, &mut room, offset, Wait::Disk).map(|count| count as u32)
    }

    fn finish(&mut self, result: i32) -> i32 {
        self.buf.finish(result)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        let (_, capacity) = self.buf.as_mut_ptr();
        usize::try_from(result) != Ok(capacity)
    }
}

counted!(Read, RecvBuf, |op| op.buf);

/// Reads from a registered file into a registered buffer; the result as that of [`Read`].
#[derive(Debug)]
pub struct ReadFixed {
    /// The file.
    pub file: RegisteredFd,
    /// Where the bytes go, from its start; returned with the completion.
    pub buf: RegisteredBuf,
    /// Bytes from the start of the file, or [`CURRENT_POSITION`].
    pub offset: u64,
}

impl Operation for ReadFixed {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        let len = self.buf.capacity();
        self.buf.name(sqe, (abi::IORING_OP_READ, abi::IORING_OP_READ_FIXED), 0, len);
        self.file.name(sqe);
        sqe.off = self.offset;
    }

    fn need(&self) -> Need {
        if self.file.is_waited_for() {
            return Need::Ready(self.file.fd(), Interest::READ);
        }
        Need::Pool([self.file.fd(), NO_FD])
    }

    fn is_borrowed(&self) -> bool {
        true
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let offset = (!self.file.is_waited_for()).then_some(self.offset);
        read_now(self.file.fd(), self.buf.whole().into(), offset)
    }

    fn work(&mut self) -> io::Result<u32> {
        let mut room = self.buf.whole().into();
        let read = storage::read_at(self.file.fd(), &mut room, self.offset, Wait::Disk);
        read.map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        usize::try_from(result) != Ok(self.buf.capacity())
    }

    fn finish(&mut self, result: i32) -> i32 {
        self.buf.set_filled(result.max(0) as usize);
        result
    }
}

counted!(ReadFixed, Option<RegisteredBuf>, |op| Some(op.buf));

/// Reads what is available without waiting.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`]; those of read(2) and pread(2).
fn read_now(fd: RawFd, mut room: Room<'_>, offset: Option<u64>) -> io::Result<u32> {
    if let Some(offset) = offset {
        return read_cached(fd, room, offset);
    }
    // The descriptor may be blocking, so poll before reading; regular files are always ready. A
    // non-blocking one is read in any case: a FIFO that had no writer is at its end, but not ready.
    if file::poll_now(fd, Interest::READ)? == Interest::NONE && !file::is_nonblocking(fd)? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    file::read_into(fd, &mut room).map(|count| count as u32)
}

/// Reads cached bytes: all of `room`, or up to the end of the file.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if less is cached; those of pread(2).
fn read_cached(fd: RawFd, mut room: Room<'_>, offset: u64) -> io::Result<u32> {
    let capacity = room.len();
    // At the file's own position a partial read could not be undone.
    if capacity > CACHED_READ_BYTES || offset == CURRENT_POSITION {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let mut part = |done: usize| {
        let (mut rest, offset) = (room.behind(done), offset.saturating_add(done as u64));
        storage::read_at(fd, &mut rest, offset, Wait::Never)
    };
    let count = match part(0) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        result => result?,
    };
    if count == 0 || count == capacity {
        return Ok(count as u32);
    }
    // The end of the file, or of the cached part? In the latter case the pool reads all of it
    // again.
    match part(count)? {
        0 => Ok(count as u32),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}
