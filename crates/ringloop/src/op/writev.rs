//! Write several buffers to a file as one: pwritev2(2), the ring's `WRITEV` (5.1).
//!
//! Readiness form: on a pool thread.

use super::{NO_FD, Need, Operation, Request};
use crate::buf::SendBuf;
use crate::limits::FILE_VECTOR_MAX;
use crate::op::{Kind, Outcome};
use crate::sys::storage;
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// The result is the number of bytes that were written; it may be less than all.
#[derive(Debug)]
pub struct WriteV {
    fd: RawFd,
    offset: u64,
    parts: Box<Parts>,
}

#[derive(Debug)]
struct Parts {
    bufs: Vec<SendBuf>,
    iovecs: Vec<libc::iovec>,
}

impl WriteV {
    /// Write at `offset` bytes from the start, or at [`storage::CURRENT_POSITION`]; buffers past the
    /// kernel's vector bound stay unwritten.
    pub fn new(fd: RawFd, bufs: Vec<SendBuf>, offset: u64) -> Self {
        let iovecs = Vec::new();
        let parts = Box::new(Parts { bufs, iovecs });
        Self { fd, offset, parts }
    }

    /// The buffers, as they were handed in.
    pub fn into_bufs(self) -> Vec<SendBuf> {
        self.parts.bufs
    }

    fn vector(&mut self) -> &[libc::iovec] {
        let Parts { bufs, iovecs } = &mut *self.parts;
        iovecs.clear();
        iovecs.extend(bufs.iter().take(FILE_VECTOR_MAX).map(|buf| {
            let bytes = buf.as_slice();
            libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            }
        }));
        iovecs
    }
}

impl Operation for WriteV {
    fn prepare(&mut self, sqe: &mut Sqe) {
        sqe.opcode = abi::OP_WRITEV;
        sqe.fd = self.fd;
        sqe.off = self.offset;
        let vector = self.vector();
        sqe.addr = vector.as_ptr() as u64;
        sqe.len = vector.len() as u32;
    }

    fn need(&self) -> Need {
        Need::Pool([self.fd, NO_FD])
    }

    fn work(&mut self) -> io::Result<u32> {
        let (fd, offset) = (self.fd, self.offset);
        let vector = self.vector();
        // SAFETY: each entry is a buffer's own bytes.
        unsafe { storage::write_vector(fd, vector, offset) }.map(|count| count as u32)
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        let asked: usize = self.vector().iter().map(|entry| entry.iov_len).sum();
        usize::try_from(result) != Ok(asked)
    }

    fn lends_memory(&self) -> bool {
        true
    }
}

impl Kind for WriteV {
    type Output = (io::Result<usize>, Vec<SendBuf>);

    fn into_request(self) -> Request {
        Request::WriteV(self)
    }

    fn output(outcome: Outcome) -> Self::Output {
        let bufs = match outcome.request {
            Some(Request::WriteV(write)) => write.into_bufs(),
            _ => Vec::new(),
        };
        (outcome.result.map(|count| count as usize), bufs)
    }
}
