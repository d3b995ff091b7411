//! Moving bytes without a copy: a pipe as the buffer between two descriptors.

use crate::executor::{LoopFd, Op};
use crate::op::{Poll, Splice, Tee};
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::interest::Interest;
use crate::sys::{file, storage};
use std::io;

/// A pipe to splice through.
#[derive(Debug)]
pub struct Pipe {
    reader: LoopFd,
    writer: LoopFd,
    capacity: usize,
}

impl Pipe {
    /// Creates a pipe for `capacity` bytes, or as many as the system allows. See pipe2(2), fcntl(2)
    /// `F_SETPIPE_SZ`.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn new(capacity: usize) -> io::Result<Self> {
        /// Default capacity of a pipe.
        const DEFAULT: usize = 64 * 1024;
        let (reader, writer) = file::pipe()?;
        let capacity = storage::set_pipe_capacity(writer.as_raw_fd(), capacity).unwrap_or(DEFAULT);
        Ok(Self { reader: reader.into(), writer: writer.into(), capacity })
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The end to splice from.
    pub fn reader(&self) -> impl AsRawFd + '_ {
        self.reader.lend()
    }

    /// The end to splice to.
    pub fn writer(&self) -> impl AsRawFd + '_ {
        self.writer.lend()
    }
}

/// Moves at most `len` bytes between two descriptors, one of them a pipe; returns the count, 0 at the
/// end of the input. An offset of `None` is the descriptor's position, the only choice for pipes and
/// sockets.
///
/// Waits for bytes and for room. Sockets and pipes should be non-blocking, as this crate's are: on
/// the ring a blocking one occupies a kernel thread. See splice(2); the ring's `SPLICE`, Linux 5.7.
///
/// # Cancel safety
/// Bytes moved by then stay at the output.
pub async fn splice(
    from: &impl AsRawFd,
    from_offset: Option<u64>,
    to: &impl AsRawFd,
    to_offset: Option<u64>,
    len: usize,
) -> io::Result<usize> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    loop {
        let splice = Splice::new((from, from_offset), (to, to_offset), len);
        match Op::new(splice).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(from, to).await?,
            result => return result,
        }
    }
}

/// Duplicates at most `len` bytes of one pipe into another; returns the count, 0 at the end of the
/// input. The bytes stay in the first. See tee(2); the ring's `TEE`, Linux 5.8.
///
/// # Cancel safety
/// Bytes duplicated by then are in both.
pub async fn tee(from: &impl AsRawFd, to: &impl AsRawFd, len: usize) -> io::Result<usize> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    loop {
        match Op::new(Tee::new(from, to, len)).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(from, to).await?,
            result => return result,
        }
    }
}

/// Waits for bytes, then for room.
async fn wait(from: RawFd, to: RawFd) -> io::Result<()> {
    for (fd, interest) in [(from, Interest::READ), (to, Interest::WRITE)] {
        let level = false;
        Op::new(Poll { fd, interest, level }).await?;
    }
    Ok(())
}
