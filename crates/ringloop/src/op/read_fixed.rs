//! Read from a registered file into a registered buffer: the ring's `READ_FIXED` (5.1), preadv2(2).
//!
//! Readiness form: at once where the bytes are in memory (`RWF_NOWAIT`), else on a pool thread.

use super::registered::{RegisteredBuf, RegisteredFd};
use super::{NO_FD, Need, Operation, Request};
use crate::limits::CACHED_READ_BYTES;
use crate::op::{Kind, Outcome};
use crate::sys::storage::{self, Wait};
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// The result is the number of bytes, 0 at the end of the file.
#[derive(Debug)]
pub struct ReadFixed {
    /// The file.
    pub file: RegisteredFd,
    /// Where the bytes go, from its start; it comes back with the completion.
    pub buf: RegisteredBuf,
    /// Bytes from the start of the file.
    pub offset: u64,
}

impl ReadFixed {
    fn read(&mut self, wait: Wait) -> io::Result<u32> {
        let (ptr, iov_len) = self.buf.room();
        let vector = [libc::iovec {
            iov_base: ptr.cast(),
            iov_len,
        }];
        // SAFETY: the buffer's own memory.
        let count = unsafe { storage::read_vector(self.file.fd(), &vector, self.offset, wait) }?;
        Ok(count as u32)
    }
}

impl Operation for ReadFixed {
    fn prepare(&mut self, sqe: &mut Sqe) {
        let (_, len) = self.buf.room();
        self.buf.name(sqe, abi::OP_READ, abi::OP_READ_FIXED, len);
        self.file.name(sqe);
        sqe.off = self.offset;
    }

    fn need(&self) -> Need {
        Need::Pool([self.file.fd(), NO_FD])
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let (_, len) = self.buf.room();
        if len > CACHED_READ_BYTES {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.read(Wait::Never) {
            Ok(count) if count as usize == len => Ok(count),
            // Less than asked for may be all there is; the thread finds out.
            Ok(_) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error),
        }
    }

    fn work(&mut self) -> io::Result<u32> {
        self.read(Wait::Disk)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        usize::try_from(result) != Ok(self.buf.capacity())
    }

    fn finish(&mut self, result: i32) -> i32 {
        self.buf.set_filled(result.max(0) as usize);
        result
    }

    fn lends_memory(&self) -> bool {
        true
    }
}

impl Kind for ReadFixed {
    type Output = (io::Result<usize>, Option<RegisteredBuf>);

    fn into_request(self) -> Request {
        Request::ReadFixed(self)
    }

    fn output(outcome: Outcome) -> Self::Output {
        let buf = match outcome.request {
            Some(Request::ReadFixed(read)) => Some(read.buf),
            _ => None,
        };
        (outcome.result.map(|count| count as usize), buf)
    }
}
