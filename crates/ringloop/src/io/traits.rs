//! What a source and a sink of bytes can do.
//!
//! Owns: [`AsyncRead`], [`StartRead`], [`AsyncWrite`]. Called by: the other files of this folder, and
//! users with sources of their own. A source has to write one method.

use super::copy_error::{CopyError, Side};
use crate::buf::Outgoing;
use crate::limits;
use std::io;

/// A source of bytes: sockets, reading halves, pipes, files, [`BufReader`](super::BufReader), `&[u8]`.
///
/// `&TcpStream` is one too, so that two tasks may share a stream.
pub trait AsyncRead {
    /// Appends to `buf` at most `limit` bytes, within its capacity; returns the count, 0 at the end.
    ///
    /// # Errors
    /// Those of read(2) and recv(2).
    ///
    /// # Cancel safety
    /// Not cancel safe, except for a [`BufReader`](super::BufReader): bytes received while the future is dropped are lost
    /// with its buffer.
    fn read_more(
        &mut self,
        buf: Vec<u8>,
        limit: usize,
    ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)>;

    /// Appends exactly `len` bytes to `buf`.
    ///
    /// ```
    /// use ringloop::io::AsyncRead;
    /// # ringloop::Runtime::new()?.block_on(async {
    /// let (mut ours, peer) = ringloop::net::UnixStream::pair()?;
    /// peer.write_all("headbody").await.0?;
    /// let (read, head) = ours.read_exact(4, Vec::new()).await;
    /// read?;
    /// assert_eq!(head, b"head");
    /// # std::io::Result::Ok(())
    /// # })??;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `UnexpectedEof` if the source ends before; those of [`AsyncRead::read_more`]. The buffer keeps the
    /// bytes that were read.
    ///
    /// # Cancel safety
    /// Not cancel safe: the bytes are lost with the buffer.
    fn read_exact(
        &mut self,
        len: usize,
        mut buf: Vec<u8>,
    ) -> impl Future<Output = (io::Result<()>, Vec<u8>)> {
        async move {
            let end = buf.len().saturating_add(len);
            buf.reserve_exact(len);
            while buf.len() < end {
                let limit = end - buf.len();
                let (result, back) = self.read_more(buf, limit).await;
                buf = back;
                match result {
                    Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                        return (Err(error), buf);
                    }
                    _ => {}
                }
            }
            (Ok(()), buf)
        }
    }

    /// Appends everything up to the end, at most `max` bytes, to `buf`; returns the count.
    ///
    /// # Errors
    /// `FileTooLarge` if there are more than `max` bytes; those of [`AsyncRead::read_more`]. The buffer
    /// keeps the bytes that were read.
    ///
    /// # Cancel safety
    /// Not cancel safe: the bytes are lost with the buffer.
    fn read_to_end(
        &mut self,
        max: usize,
        mut buf: Vec<u8>,
    ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> {
        async move {
            let start = buf.len();
            loop {
                // One more than allowed tells a source that is too long from one that ends there.
                let left = max.saturating_sub(buf.len() - start).saturating_add(1);
                buf.reserve(left.min(limits::BUFFERED_READ_BYTES));
                let (result, back) = self.read_more(buf, left).await;
                buf = back;
                match result {
                    Ok(0) => return (Ok(buf.len() - start), buf),
                    Ok(count) if count < left => {}
                    Ok(_) => {
                        let text = format!("the stream is longer than the maximum of {max} bytes");
                        return (Err(io::Error::new(io::ErrorKind::FileTooLarge, text)), buf);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return (Err(error), buf),
                }
            }
        }
    }

    /// Writes everything up to the end to `to`, as [`copy`](super::copy), which calls it; sockets pass the loop's own
    /// buffers on.
    ///
    /// # Errors
    /// As [`copy`](super::copy).
    fn copy_to<W: AsyncWrite>(
        &mut self,
        to: &mut W,
    ) -> impl Future<Output = Result<u64, CopyError>> {
        by_buffer(self, to)
    }
}

/// A source whose read borrows nothing, so that [`BufReader`](super::BufReader) can keep one across its own futures.
pub trait StartRead: AsyncRead {
    /// A read, which has its buffer. For a type without one, `Pin<Box<dyn Future<Output = …>>>` fits.
    type Reading: Future<Output = (io::Result<usize>, Vec<u8>)> + Unpin;

    /// Begins [`AsyncRead::read_more`]. It is dropped, or has ended, before the source is.
    fn start_read(&mut self, buf: Vec<u8>, limit: usize) -> Self::Reading;
}

/// A sink of bytes: sockets, writing halves, pipes, files, `Vec<u8>`.
pub trait AsyncWrite {
    /// Writes all of `bytes`, and returns them.
    ///
    /// # Errors
    /// Those of write(2) and send(2); some of the bytes may have been written.
    ///
    /// # Cancel safety
    /// Not cancel safe: some of the bytes may have been written.
    fn write_all<B: Outgoing>(&mut self, bytes: B) -> impl Future<Output = (io::Result<()>, B)>;

    /// Ends the sink: a socket's peer reads EOF after the last byte. A pipe ends when it is dropped.
    ///
    /// # Errors
    /// Those of shutdown(2); none if the peer has reset the connection before.
    fn shut_down(&mut self) -> impl Future<Output = io::Result<()>>;
}

/// A copy through a buffer.
async fn by_buffer<R, W>(from: &mut R, to: &mut W) -> Result<u64, CopyError>
where
    R: AsyncRead + ?Sized,
    W: AsyncWrite,
{
    let mut buf = Vec::with_capacity(limits::COPY_BYTES_MIN);
    let mut copied = 0;
    loop {
        let (read, back) = from.read_more(buf, limits::COPY_BYTES_MAX).await;
        buf = back;
        match read {
            Ok(0) => return Ok(copied),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::new(Side::Read, copied, error)),
        }
        let (len, was_full) = (buf.len(), buf.len() == buf.capacity());
        let (written, back) = to.write_all(buf).await;
        written.map_err(|error| CopyError::new(Side::Write, copied, error))?;
        copied += len as u64;
        buf = back;
        buf.clear();
        if was_full && len < limits::COPY_BYTES_MAX {
            buf = Vec::with_capacity(len * 2);
        }
    }
}
