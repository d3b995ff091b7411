//! Write to a registered file from a registered buffer: the ring's `WRITE_FIXED` (5.1), write(2), pwritev2(2).
//!
//! Readiness form: to a pipe when it is writable, as much as fits; to a file on a pool thread.

use super::operation::{NO_FD, Need, Operation, counted};
use super::registered::{RegisteredBuf, RegisteredFd};
use super::write::write_ready;
use crate::sys::interest::Interest;
use crate::sys::storage;
#[cfg(doc)]
use crate::sys::storage::CURRENT_POSITION;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// The result is the number of bytes written, possibly not all.
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
