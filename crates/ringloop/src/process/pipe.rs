//! Our ends of a child's pipes.
//!
//! Owns: [`PipeReader`], [`PipeWriter`]. Called by: `Child`, applications. Our end is made non-blocking,
//! which does not affect the other end.

use crate::buf::{Outgoing, RecvBuf, SendBuf};
use crate::executor::Op;
use crate::net::Socket;
use crate::op::{Read, Write};
use crate::sys::fd::{AsRawFd, OwnedFd};
use crate::sys::file;
use std::io;

/// Bytes per read of [`PipeReader::read_to_end`]: the capacity of a pipe.
const PIPE_BYTES: usize = 64 * 1024;

/// The reading end of a pipe.
#[derive(Debug)]
pub struct PipeReader(Socket);

/// The writing end of a pipe; dropping it ends the reader's input.
#[derive(Debug)]
pub struct PipeWriter(Socket);

impl PipeReader {
    /// Takes over the reading end of a pipe.
    pub fn new(end: OwnedFd) -> io::Result<Self> {
        file::set_nonblocking(end.as_raw_fd(), true)?;
        Ok(Self(end.into()))
    }

    /// Reads up to the capacity of `buf`; 0 once every writer has closed its end. Without capacity it
    /// returns 0 at once.
    ///
    /// # Cancel safety
    /// Bytes read while the future is dropped are lost with its buffer.
    pub async fn read(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        if buf.capacity() == 0 {
            return (Ok(0), buf);
        }
        let (result, buf) = self.read_op(buf.into()).await;
        (result, buf.into_vec())
    }

    /// A read into the room of `buf`.
    pub(crate) fn read_op(&self, buf: RecvBuf) -> Op<Read> {
        Op::new(Read { fd: self.0.on_loop(), buf, offset: None })
    }

    /// Appends to `bytes` until every writer has closed its end.
    pub async fn read_to_end(&self, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut buf = Vec::with_capacity(PIPE_BYTES);
        loop {
            let (result, back) = self.read(buf).await;
            if result? == 0 {
                return Ok(bytes);
            }
            buf = back;
            bytes.extend_from_slice(&buf);
        }
    }
}

impl PipeWriter {
    /// Takes over the writing end of a pipe.
    pub fn new(end: OwnedFd) -> io::Result<Self> {
        file::set_nonblocking(end.as_raw_fd(), true)?;
        Ok(Self(end.into()))
    }

    /// Writes some of `bytes`; returns the count.
    ///
    /// # Errors
    /// `EPIPE` once every reader has closed its end.
    pub async fn write<B: Outgoing>(&self, bytes: B) -> (io::Result<usize>, B) {
        let (buf, kept) = bytes.lend();
        let (result, buf) = self.write_buf(buf).await;
        (result, B::restore(kept, buf))
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As [`PipeWriter::write`].
    ///
    /// # Cancel safety
    /// Not cancel safe: some of the bytes may have been written.
    pub async fn write_all<B: Outgoing>(&self, bytes: B) -> (io::Result<()>, B) {
        let (mut buf, kept) = bytes.lend();
        let mut written = Ok(());
        while !buf.is_empty() && written.is_ok() {
            let (result, back) = self.write_buf(buf).await;
            buf = back;
            written = result.map(|count| buf.advance(count));
        }
        (written, B::restore(kept, buf))
    }

    async fn write_buf(&self, buf: SendBuf) -> (io::Result<usize>, SendBuf) {
        let write = Write { fd: self.0.on_loop(), buf, offset: None };
        Op::new(write).await
    }
}

/// Two ends of a new pipe. See pipe(2).
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = file::pipe()?;
    Ok((PipeReader(reader.into()), PipeWriter(writer.into())))
}
