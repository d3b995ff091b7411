//! Write to a pipe, or to a file at an offset: write(2), pwritev2(2), the ring's `WRITE` (5.6).
//!
//! Readiness form: to a pipe when it is writable, as much as fits; to a file on a pool thread. The
//! same for registered files and buffers, by the ring's `WRITE_FIXED` (5.1).

use super::operation::{NO_FD, Need, Operation, counted};
use super::registered::{RegisteredBuf, RegisteredFd};
use crate::buf::SendBuf;
use crate::sys::fd::RawFd;
use crate::sys::file;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::storage::{self, CURRENT_POSITION};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// `PIPE_BUF`-sized parts that one try writes to a pipe: a pipe's default capacity.
const PIPE_PARTS_MAX: usize = 16;

/// The result is the number of bytes written, possibly not all.
#[derive(Debug)]
pub struct Write {
    /// The descriptor.
    pub fd: RawFd,
    /// The bytes; returned with the completion.
    pub buf: SendBuf,
    /// For a regular file: bytes from its start, or [`CURRENT_POSITION`]. `None` also writes at the
    /// position, and is for pollable files: pipes, sockets, and non-blocking terminals. The ring
    /// does not check the kind of file; [`File`](crate::fs::File) does.
    pub offset: Option<u64>,
}

impl Operation for Write {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        // By address: in a link the bytes may not be there yet.
        let (ptr, len) = self.buf.as_ptr();
        sqe.opcode = abi::IORING_OP_WRITE;
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

    fn is_borrowed(&self) -> bool {
        true
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
}

counted!(Write, SendBuf, |op| op.buf);

/// Writes to a registered file from a registered buffer; the result as that of [`Write`].
#[derive(Debug)]
pub struct WriteFixed {
    /// The file.
    pub file: RegisteredFd,
    /// The bytes it holds are written; returned with the completion.
    pub buf: RegisteredBuf,
    /// Bytes from the start of the file, or [`CURRENT_POSITION`].
    pub offset: u64,
}

impl Operation for WriteFixed {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        let len = self.buf.rest().len();
        let from = self.buf.len() - len;
        self.buf.name(sqe, (abi::IORING_OP_WRITE, abi::IORING_OP_WRITE_FIXED), from, len);
        self.file.name(sqe);
        sqe.off = self.offset;
    }

    fn need(&self) -> Need {
        if self.file.is_waited_for() {
            return Need::Ready(self.file.fd(), Interest::WRITE);
        }
        Need::Pool([self.file.fd(), NO_FD])
    }

    fn is_borrowed(&self) -> bool {
        true
    }

    fn attempt(&mut self) -> io::Result<u32> {
        if self.file.is_waited_for() {
            return write_ready(self.file.fd(), self.buf.rest());
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn work(&mut self) -> io::Result<u32> {
        let written = storage::write_at(self.file.fd(), self.buf.rest(), self.offset);
        written.map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        usize::try_from(result) != Ok(self.buf.rest().len())
    }
}

counted!(WriteFixed, Option<RegisteredBuf>, |op| Some(op.buf));

/// Writes what a pollable descriptor takes now. As for a read: a blocking descriptor must not stop
/// the loop.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`]; those of write(2).
fn write_ready(fd: RawFd, bytes: &[u8]) -> io::Result<u32> {
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

/// True if a large write to a writable descriptor may block.
fn may_wait(fd: RawFd) -> io::Result<bool> {
    Ok(!file::is_nonblocking(fd)? && file::kind(fd)? != file::FileKind::Memory)
}

/// Writes as much as goes without waiting to a blocking pipe, whose writes block until all is
/// written: a writable pipe takes `PIPE_BUF` bytes, pipe(7).
fn write_parts(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    for part in bytes.chunks(libc::PIPE_BUF).take(PIPE_PARTS_MAX) {
        if written > 0 && file::poll_now(fd, Interest::WRITE)? == Interest::NONE {
            break;
        }
        match file::write(fd, part, None) {
            Ok(count) => written += count,
            Err(error) if written == 0 => return Err(error),
            // The next write reports it.
            Err(_) => break,
        }
    }
    Ok(written)
}
