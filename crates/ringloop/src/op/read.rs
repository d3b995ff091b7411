//! Read from a file or pipe: read(2), or pread(2) at an offset.

use super::{Need, Operation, Request};
use crate::buf::RecvBuf;
use crate::op::{Kind, Outcome};
use crate::sys::file;
use crate::sys::interest::Interest;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// The ring's "at the file's own position" (see `io_uring_prep_read(3)`).
pub(super) const CURRENT_POSITION: u64 = u64::MAX;

/// The result is the number of bytes, 0 at the end of the file.
#[derive(Debug)]
pub struct Read {
    /// The descriptor.
    pub fd: RawFd,
    /// Where the bytes go; it comes back with the completion.
    pub buf: RecvBuf,
    /// Bytes from the start of the file; `None` is the file's own position.
    pub offset: Option<u64>,
}

impl Operation for Read {
    fn prepare(&mut self, sqe: &mut Sqe) {
        let (ptr, capacity) = self.buf.as_mut_ptr();
        sqe.opcode = abi::OP_READ;
        sqe.fd = self.fd;
        sqe.addr = ptr as u64;
        sqe.len = capacity.min(i32::MAX as usize) as u32;
        sqe.off = self.offset.unwrap_or(CURRENT_POSITION);
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::READ)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        // The descriptor may be a blocking one, so ask before reading; regular files are always ready.
        if file::poll_now(self.fd, Interest::READ)? == Interest::NONE {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        file::read(self.fd, self.buf.as_uninit(), self.offset).map(|count| count as u32)
    }

    fn finish(&mut self, result: i32) -> i32 {
        // SAFETY: the kernel counted `result` bytes written at the start of the buffer.
        unsafe { self.buf.set_filled(result.max(0) as usize) };
        result
    }

    fn lends_memory(&self) -> bool {
        true
    }
}

impl Kind for Read {
    type Output = (io::Result<usize>, RecvBuf);

    fn into_request(self) -> Request {
        Request::Read(self)
    }

    fn output(outcome: Outcome) -> Self::Output {
        let buf = match outcome.request {
            Some(Request::Read(read)) => read.buf,
            _ => RecvBuf::with_capacity(0),
        };
        (outcome.result.map(|count| count as usize), buf)
    }
}
