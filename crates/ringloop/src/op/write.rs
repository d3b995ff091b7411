//! Write to a file or pipe: write(2), or pwrite(2) at an offset.

use super::read::CURRENT_POSITION;
use super::{Need, Operation, Request};
use crate::buf::SendBuf;
use crate::op::{Kind, Outcome};
use crate::sys::file;
use crate::sys::interest::Interest;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// The result is the number of bytes that were written; it may be less than all.
#[derive(Debug)]
pub struct Write {
    /// The descriptor.
    pub fd: RawFd,
    /// The bytes; they come back with the completion.
    pub buf: SendBuf,
    /// Bytes from the start of the file; `None` is the file's own position.
    pub offset: Option<u64>,
}

impl Operation for Write {
    fn prepare(&mut self, sqe: &mut Sqe) {
        let bytes = self.buf.as_slice();
        sqe.opcode = abi::OP_WRITE;
        sqe.fd = self.fd;
        sqe.addr = bytes.as_ptr() as u64;
        sqe.len = bytes.len().min(i32::MAX as usize) as u32;
        sqe.off = self.offset.unwrap_or(CURRENT_POSITION);
    }

    fn need(&self) -> Need {
        Need::Ready(self.fd, Interest::WRITE)
    }

    fn attempt(&mut self) -> io::Result<u32> {
        // As for a read: a blocking descriptor must not stop the loop.
        if file::poll_now(self.fd, Interest::WRITE)? == Interest::NONE {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        file::write(self.fd, self.buf.as_slice(), self.offset).map(|count| count as u32)
    }

    fn lends_memory(&self) -> bool {
        true
    }
}

impl Kind for Write {
    type Output = (io::Result<usize>, SendBuf);

    fn into_request(self) -> Request {
        Request::Write(self)
    }

    fn output(outcome: Outcome) -> Self::Output {
        let buf = match outcome.request {
            Some(Request::Write(write)) => write.buf,
            _ => Vec::new().into(),
        };
        (outcome.result.map(|count| count as usize), buf)
    }
}
