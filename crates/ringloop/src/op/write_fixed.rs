//! Write to a registered file from a registered buffer: the ring's `WRITE_FIXED` (5.1), pwritev2(2).
//!
//! Readiness form: on a pool thread.

use super::registered::{RegisteredBuf, RegisteredFd};
use super::{NO_FD, Need, Operation, Request};
use crate::op::{Kind, Outcome};
use crate::sys::storage;
use crate::sys::uring::abi::{self, Sqe};
use std::io;

/// The result is the number of bytes that were written; it may be less than all.
#[derive(Debug)]
pub struct WriteFixed {
    /// The file.
    pub file: RegisteredFd,
    /// The bytes that it holds are written; it comes back with the completion.
    pub buf: RegisteredBuf,
    /// Bytes from the start of the file.
    pub offset: u64,
}

impl Operation for WriteFixed {
    fn prepare(&mut self, sqe: &mut Sqe) {
        let len = self.buf.len();
        self.buf.name(sqe, abi::OP_WRITE, abi::OP_WRITE_FIXED, len);
        self.file.name(sqe);
        sqe.off = self.offset;
    }

    fn need(&self) -> Need {
        Need::Pool([self.file.fd(), NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        let vector = [libc::iovec {
            iov_base: self.buf.as_ptr().cast_mut().cast(),
            iov_len: self.buf.len(),
        }];
        // SAFETY: the buffer's own bytes, which nobody changes.
        let written = unsafe { storage::write_vector(self.file.fd(), &vector, self.offset) };
        written.map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        usize::try_from(result) != Ok(self.buf.len())
    }

    fn lends_memory(&self) -> bool {
        true
    }
}

impl Kind for WriteFixed {
    type Output = (io::Result<usize>, Option<RegisteredBuf>);

    fn into_request(self) -> Request {
        Request::WriteFixed(self)
    }

    fn output(outcome: Outcome) -> Self::Output {
        let buf = match outcome.request {
            Some(Request::WriteFixed(write)) => Some(write.buf),
            _ => None,
        };
        (outcome.result.map(|count| count as usize), buf)
    }
}
