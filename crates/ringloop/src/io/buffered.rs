//! A source with a buffer: bytes up to a delimiter, lines, exact counts.
//!
//! Owns: [`BufReader`] (the source, its unread bytes, and a read in flight), [`Lines`]. Called by:
//! applications; [`Framed`](super::Framed) is made of it.
//!
//! A read that a dropped future has begun stays in the reader, with the buffer, until the next call
//! continues it. So nothing that came is lost, and every method is cancel safe whose caller's memory
//! is written at its end only.

use super::copy_error::{CopyError, Side};
use super::traits::{AsyncRead, AsyncWrite, StartRead};
use crate::limits;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Reads a source through a buffer of its own.
///
/// Lines and other records are at most [`limits::RECORD_BYTES_MAX`](crate::embed::limits::RECORD_BYTES_MAX)
/// long, or what [`BufReader::with_record_max`] says. While it is idle it keeps a buffer of
/// [`limits::BUFFERED_READ_BYTES`](crate::embed::limits::BUFFERED_READ_BYTES).
///
/// ```
/// use ringloop::{io::{AsyncRead, BufReader}, net::UnixStream};
///
/// # ringloop::Runtime::new()?.block_on(async {
/// let (ours, peer) = UnixStream::pair()?;
/// peer.write_all("4\nbody").await.0?;
/// let mut reader = BufReader::new(ours);
/// let mut line = String::new();
/// reader.read_line(&mut line).await?;
/// let len = line.trim_end().parse().unwrap_or(0);
/// let (read, body) = reader.read_exact(len, Vec::new()).await;
/// read?;
/// assert_eq!(body, b"body");
/// # std::io::Result::Ok(())
/// # })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BufReader<R: StartRead> {
    // Dropped in this order: the read before its source.
    reading: Option<R::Reading>,
    source: R,
    /// Received bytes; those from `taken` on are unread. Empty while a read is in flight.
    buf: Vec<u8>,
    taken: usize,
    record_max: usize,
}

impl<R: StartRead> BufReader<R> {
    /// A reader of `source`.
    pub fn new(source: R) -> Self {
        Self {
            reading: None,
            source,
            buf: Vec::new(),
            taken: 0,
            record_max: limits::RECORD_BYTES_MAX,
        }
    }

    /// Refuses lines and other records of more than `max` bytes, delimiter included.
    #[must_use]
    pub fn with_record_max(self, max: usize) -> Self {
        Self { record_max: max, ..self }
    }

    /// The unread bytes that are here; none while a read that was dropped is in flight.
    pub fn buffer(&self) -> &[u8] {
        &self.buf[self.taken..]
    }

    /// The unread bytes; waits if there are none. Empty at the end of the source.
    ///
    /// # Errors
    /// Those of [`AsyncRead::read_more`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.buffer().is_empty() {
            self.fill_more().await?;
        }
        Ok(self.buffer())
    }

    /// Drops the first `count` unread bytes, at most all.
    pub fn consume(&mut self, count: usize) {
        self.taken = self.buf.len().min(self.taken.saturating_add(count));
    }

    /// Receives more after the unread bytes; returns the count of new ones, 0 at the end.
    ///
    /// # Errors
    /// Those of [`AsyncRead::read_more`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn fill_more(&mut self) -> io::Result<usize> {
        loop {
            match poll_fn(|cx| self.poll_fill_more(cx)).await {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                filled => return filled,
            }
        }
    }

    fn poll_fill_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.reading.is_none() {
            let buf = self.room();
            self.reading = Some(self.source.start_read(buf, usize::MAX));
        }
        let Some(reading) = &mut self.reading else {
            return Poll::Ready(Ok(0));
        };
        let (result, buf) = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        self.buf = buf;
        Poll::Ready(result)
    }

    /// The unread bytes at the start of their buffer, with room after them.
    fn room(&mut self) -> Vec<u8> {
        let mut buf = std::mem::take(&mut self.buf);
        buf.drain(..std::mem::take(&mut self.taken));
        if buf.is_empty() && buf.capacity() > limits::BUFFERED_READ_BYTES {
            buf = Vec::new();
        }
        buf.reserve(limits::BUFFERED_READ_BYTES);
        buf
    }

    /// Appends the bytes up to and including `delimiter` to `bytes`; returns their count. The rest of
    /// the source comes without one; 0 is its end.
    ///
    /// # Errors
    /// `InvalidData` for a record over the maximum, which stays unread; those of
    /// [`AsyncRead::read_more`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read_until(&mut self, delimiter: u8, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let len = self.find(delimiter).await?;
        bytes.extend_from_slice(&self.buffer()[..len]);
        self.consume(len);
        Ok(len)
    }

    /// Appends the next line with its `\n` to `line`; returns the count of bytes, 0 at the end.
    ///
    /// # Errors
    /// `InvalidData` if it is not UTF-8 (the line is dropped) or over the maximum (it stays unread); those
    /// of [`AsyncRead::read_more`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read_line(&mut self, line: &mut String) -> io::Result<usize> {
        let len = self.find(b'\n').await?;
        let text = utf8(&self.buffer()[..len]).map(|text| line.push_str(text));
        self.consume(len);
        text.map(|()| len)
    }

    /// The lines of the source.
    pub fn lines(self) -> Lines<R> {
        Lines(self)
    }

    /// Copies some unread bytes to `into`; waits if there are none. 0 at the end, or without room.
    ///
    /// # Errors
    /// Those of [`AsyncRead::read_more`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let filled = self.fill_buf().await?;
        let count = filled.len().min(into.len());
        into[..count].copy_from_slice(&filled[..count]);
        self.consume(count);
        Ok(count)
    }

    /// Waits for the delimiter, or the end; returns the length of what ends there.
    async fn find(&mut self, delimiter: u8) -> io::Result<usize> {
        let mut searched = 0;
        loop {
            let unread = self.buffer();
            // A read of a dropped call may be in flight, with the bytes.
            let rest = unread.get(searched..).unwrap_or_default();
            let found = rest.iter().position(|byte| *byte == delimiter);
            let len = found.map_or(unread.len(), |at| searched + at + 1);
            searched = unread.len();
            if len > self.record_max || (found.is_none() && len == self.record_max) {
                let text = format!(
                    "a record is longer than the maximum of {} bytes: raise it by with_record_max",
                    self.record_max
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            if found.is_some() || self.fill_more().await? == 0 {
                return Ok(len);
            }
        }
    }

    /// The source. Reads of it pass the unread bytes by.
    pub fn get_ref(&self) -> &R {
        &self.source
    }

    /// As [`BufReader::get_ref`].
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// The source and the unread bytes. A read in flight is cancelled: what it had received is lost.
    pub fn into_parts(mut self) -> (R, Vec<u8>) {
        self.buf.drain(..self.taken);
        (self.source, self.buf)
    }
}

impl<R: StartRead> AsyncRead for BufReader<R> {
    async fn read_more(&mut self, mut buf: Vec<u8>, limit: usize) -> (io::Result<usize>, Vec<u8>) {
        let room = limit.min(buf.capacity() - buf.len());
        let is_ahead = self.reading.is_some() || !self.buffer().is_empty();
        if !is_ahead && room >= limits::BUFFERED_READ_BYTES {
            return self.source.read_more(buf, limit).await;
        }
        match self.fill_buf().await {
            Ok(filled) => {
                let count = filled.len().min(room);
                buf.extend_from_slice(&filled[..count]);
                self.consume(count);
                (Ok(count), buf)
            }
            Err(error) => (Err(error), buf),
        }
    }

    async fn copy_to<W: AsyncWrite>(&mut self, to: &mut W) -> Result<u64, CopyError> {
        if self.reading.is_some() {
            let filled = self.fill_more().await;
            filled.map_err(|error| CopyError::new(Side::Read, 0, error))?;
        }
        let unread = self.buffer().to_vec();
        self.consume(unread.len());
        let first = unread.len() as u64;
        let (written, _) = to.write_all(unread).await;
        written.map_err(|error| CopyError::new(Side::Write, 0, error))?;
        let rest = self.source.copy_to(to).await;
        rest.map(|rest| first + rest)
            .map_err(|error| CopyError { copied: first + error.copied, ..error })
    }
}

impl<R: StartRead + AsyncWrite> AsyncWrite for BufReader<R> {
    fn write_all<B: crate::buf::Outgoing>(
        &mut self,
        bytes: B,
    ) -> impl Future<Output = (io::Result<()>, B)> {
        self.source.write_all(bytes)
    }

    fn shut_down(&mut self) -> impl Future<Output = io::Result<()>> {
        self.source.shut_down()
    }
}

impl<R: StartRead> fmt::Debug for BufReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_reading = self.reading.is_some();
        f.debug_struct("BufReader")
            .field("unread_len", &self.buffer().len())
            .field("is_reading", &is_reading)
            .finish_non_exhaustive()
    }
}

/// The lines of a source, by [`BufReader::lines`].
#[derive(Debug)]
pub struct Lines<R: StartRead>(BufReader<R>);

impl<R: StartRead> Lines<R> {
    /// The next line, without its `\n` or `\r\n`; `None` at the end.
    ///
    /// # Errors
    /// As [`BufReader::read_line`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next_line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        line.truncate(without_end(&line).len());
        Ok(Some(line))
    }

    /// The reader.
    pub fn into_inner(self) -> BufReader<R> {
        self.0
    }
}

/// A line without its end.
pub(super) fn without_end(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

pub(super) fn utf8(bytes: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
