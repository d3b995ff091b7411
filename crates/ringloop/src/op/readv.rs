//! Read from a file into several buffers: preadv2(2), the ring's `READV` (5.1).
//!
//! Readiness form: at once if the bytes are cached (`RWF_NOWAIT`), otherwise on a pool thread.

use super::operation::{NO_FD, Need, Operation, counted};
use super::vector::Vector;
use crate::buf::RecvBuf;
use crate::limits::CACHED_READ_BYTES;
use crate::sys::storage::{self, Wait};
use crate::sys::uring::abi::{self, Sqe};
use std::io;
use std::os::fd::RawFd;

/// Fills the buffers in order. The result is the number of bytes in all of them; 0 at the end of
/// the file.
#[derive(Debug)]
pub struct ReadV {
    fd: RawFd,
    offset: u64,
    vector: Vector<RecvBuf>,
}

impl ReadV {
    /// Reads at `offset` bytes from the start, or at [`storage::CURRENT_POSITION`]; buffers past
    /// `IOV_MAX` stay empty.
    pub fn new(fd: RawFd, bufs: Vec<RecvBuf>, offset: u64) -> Self {
        let vector = Vector::new(bufs);
        Self { fd, offset, vector }
    }

    /// The buffers, each with what was read into it.
    pub fn into_bufs(self) -> Vec<RecvBuf> {
        self.vector.into_bufs()
    }

    fn read(&mut self, wait: Wait) -> io::Result<u32> {
        let (fd, offset) = (self.fd, self.offset);
        self.vector.read(fd, offset, wait).map(|count| count as u32)
    }
}

impl Operation for ReadV {
    const EXPOSES_MEMORY: bool = true;

    fn prepare(&mut self, sqe: &mut Sqe) {
        self.vector.prepare(abi::IORING_OP_READV, self.fd, self.offset, sqe);
    }

    fn need(&self) -> Need {
        Need::Pool([self.fd, NO_FD])
    }

    fn attempt(&mut self) -> io::Result<u32> {
        let asked = self.vector.len();
        if asked > CACHED_READ_BYTES || self.offset == storage::CURRENT_POSITION {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.read(Wait::Never) {
            Ok(count) if count as usize == asked => Ok(count),
            // A short read may be all there is; the pool thread finds out.
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

    fn finish(&mut self, result: i32) -> i32 {
        let mut left = result.max(0) as usize;
        for buf in self.vector.bufs_mut() {
            let (_, capacity) = buf.as_mut_ptr();
            let count = left.min(capacity);
            buf.finish(count as i32);
            left -= count;
        }
        result
    }

    fn breaks_link(&mut self, result: i32) -> bool {
        usize::try_from(result) != Ok(self.vector.len())
    }
}

counted!(ReadV, Vec<RecvBuf>, ReadV::into_bufs);
