//! Read from a registered file into a registered buffer: the ring's `READ_FIXED` (5.1), read(2),
//! preadv2(2).
//!
//! Readiness form: as `read`.

use super::operation::{NO_FD, Need, Operation, counted};
use super::read::read_now;
use super::registered::{RegisteredBuf, RegisteredFd};
use crate::sys::interest::Interest;
#[cfg(doc)]
use crate::sys::storage::CURRENT_POSITION;
use crate::sys::storage::{self, Wait};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// The result is the number of bytes, 0 at the end of the file.
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
