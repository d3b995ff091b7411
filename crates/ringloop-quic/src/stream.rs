//! Streams as futures: writes wait for the peer's credit, reads return it.
//!
//! Owns: [`SendStream`], [`RecvStream`]. Called by: applications. No buffers of its own: data is in
//! the connection's bounded send and receive windows.

use crate::StreamId;
use crate::core::{Connection, Read, Written};
use crate::error::StreamError;
use crate::session::{RecvHalf, SendHalf, Wait};
use crate::shared::Inner;
use bytes::Bytes;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The sending end of a stream. Dropping it finishes the stream.
pub struct SendStream {
    inner: Rc<Inner>,
    half: SendHalf,
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendStream").field(&self.id().0).finish()
    }
}

impl SendStream {
    pub(crate) fn new(inner: &Rc<Inner>, id: StreamId, is_early: bool) -> Self {
        Self { inner: Rc::clone(inner), half: SendHalf::new(id, is_early) }
    }

    /// The stream's id.
    pub fn id(&self) -> StreamId {
        self.half.id()
    }

    /// Writes some of `bytes`, at least one (0 only for an empty slice); waits for room in the
    /// windows.
    ///
    /// # Errors
    /// [`StreamError::Stopped`] by the peer, [`StreamError::Closed`], errors of the connection.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing was written.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        poll_fn(|cx| self.poll_write(cx, bytes)).await
    }

    /// [`SendStream::write`] as a poll function.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, StreamError>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let id = self.id();
        self.writing(cx, |connection| connection.write(id, bytes))
    }

    /// Writes what there is room for now; 0 if there is none.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        let half = &mut self.half;
        let result = self.inner.act(|connection, session| {
            half.check(session)?;
            Ok(match connection.write(half.id(), bytes)? {
                Written::Some(count) => count,
                Written::Blocked => 0,
            })
        });
        half.note(&result);
        result
    }

    /// Writes all of `bytes`.
    ///
    /// # Cancel safety
    /// Not cancel safe: a part may have been written.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            let count = self.write(bytes).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Writes some of `chunks` without copying. Written ones become empty; one may be split.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing was written.
    pub async fn write_chunks(&mut self, chunks: &mut [Bytes]) -> Result<usize, StreamError> {
        if chunks.iter().all(Bytes::is_empty) {
            return Ok(0);
        }
        let id = self.id();
        poll_fn(|cx| self.writing(cx, |connection| connection.write_chunks(id, chunks))).await
    }

    /// Writes all of `chunk` without copying.
    ///
    /// # Cancel safety
    /// Not cancel safe: a part may have been written.
    pub async fn write_chunk(&mut self, chunk: Bytes) -> Result<(), StreamError> {
        let mut chunks = [chunk];
        while !chunks[0].is_empty() {
            self.write_chunks(&mut chunks).await?;
        }
        Ok(())
    }

    fn writing(
        &mut self,
        cx: &Context<'_>,
        write: impl FnOnce(&mut Connection<'_>) -> Result<Written, StreamError>,
    ) -> Poll<Result<usize, StreamError>> {
        let half = &mut self.half;
        let wait = Wait::Write(half.id());
        let polled = self.inner.poll_stream(cx, wait, |connection, session| {
            match half.check(session).and_then(|()| write(connection)) {
                Ok(Written::Some(count)) => Some(Ok(count)),
                Ok(Written::Blocked) => None,
                Err(error) => Some(Err(error)),
            }
        });
        self.inner.shared.wake();
        if let Poll::Ready(result) = &polled {
            half.note(result);
        }
        polled
    }

    /// Finishes the stream. The peer reads everything written, then the end.
    ///
    /// # Errors
    /// [`StreamError::Closed`] if it was finished or reset; [`StreamError::Stopped`] if the peer
    /// stopped it, and it is reset with the peer's code.
    pub fn finish(&mut self) -> Result<(), StreamError> {
        let half = &mut self.half;
        half.close();
        let result = self.inner.act(|connection, session| {
            half.check(session)?;
            session.finish(connection, half.id())
        });
        half.note_finish(&result);
        result.map(drop)
    }

    /// Resets the stream with the application's code; unacknowledged data may be lost.
    pub fn reset(&mut self, code: u64) -> Result<(), StreamError> {
        let half = &mut self.half;
        half.close();
        self.inner.act(|connection, session| {
            half.check(session)?;
            half.look_for_stop(connection);
            connection.reset(half.id(), code)?;
            half.note_reset(code);
            Ok(())
        })
    }

    /// Waits until the peer has acknowledged everything, including the end (`None`), or stopped the
    /// stream (its application's code). After a local reset it returns the reset's code at once, or
    /// the peer's if that came first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn stopped(&mut self) -> Result<Option<u64>, StreamError> {
        let (inner, half) = (&self.inner, &mut self.half);
        poll_fn(|cx| {
            inner.poll_stream(cx, Wait::Finished(half.id()), |connection, session| {
                half.outcome(connection, session).transpose()
            })
        })
        .await
    }

    /// Sets the priority: higher ones send first; 0 by default.
    pub fn set_priority(&mut self, priority: i32) -> Result<(), StreamError> {
        self.inner.with(|connection, session| {
            self.half.check_early(session)?;
            connection.set_priority(self.half.id(), priority)
        })
    }

    /// The stream's priority.
    pub fn priority(&self) -> Result<i32, StreamError> {
        self.inner.with(|connection, session| {
            self.half.check_early(session)?;
            connection.priority(self.half.id())
        })
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let (half, id) = (&self.half, self.id());
        let left = self.inner.with(|_, session| {
            // The id may have been reused.
            half.check_early(session).ok()?;
            session.forget_finish(id);
            let waits = [Wait::Write(id), Wait::Finished(id)];
            Some((session.error().is_none(), session.attached.forget(&waits)))
        });
        if let Some((true, _left)) = left
            && half.is_open()
        {
            drop(self.inner.act(|connection, _| connection.finish(id)));
        }
    }
}

/// The receiving end of a stream. Dropping it before the end stops the stream with code 0.
pub struct RecvStream {
    inner: Rc<Inner>,
    half: RecvHalf,
}

impl fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecvStream").field(&self.id().0).finish()
    }
}

impl RecvStream {
    pub(crate) fn new(inner: &Rc<Inner>, id: StreamId, is_early: bool) -> Self {
        Self { inner: Rc::clone(inner), half: RecvHalf::new(id, is_early) }
    }

    /// The stream's id.
    pub fn id(&self) -> StreamId {
        self.half.id()
    }

    /// Reads some bytes into `buf`, at least one; `None` at the end of the stream.
    ///
    /// # Errors
    /// [`StreamError::Reset`] by the peer, [`StreamError::Closed`] after a stop, errors of the
    /// connection once received data was read.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing was read.
    pub async fn read(&mut self, buf: &mut [u8]) -> Result<Option<usize>, StreamError> {
        poll_fn(|cx| self.poll_read(cx, buf)).await
    }

    /// [`RecvStream::read`] as a poll function.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<Result<Option<usize>, StreamError>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(Some(0)));
        }
        let mut at = 0;
        let len = buf.len();
        self.reading(cx, len, |bytes| {
            buf[at..at + bytes.len()].copy_from_slice(&bytes);
            at += bytes.len();
            true
        })
    }

    /// Reads exactly `buf.len()` bytes.
    ///
    /// # Errors
    /// [`StreamError::Closed`] if the stream ends before.
    ///
    /// # Cancel safety
    /// Not cancel safe: a part may have been read.
    pub async fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), StreamError> {
        let mut at = 0;
        while at < buf.len() {
            match self.read(&mut buf[at..]).await? {
                Some(count) => at += count,
                None => return Err(StreamError::Closed),
            }
        }
        Ok(())
    }

    /// Takes the next chunk without copying: at least one byte, at most `bytes_max`; `None` at the
    /// end of the stream.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read_chunk(&mut self, bytes_max: usize) -> Result<Option<Bytes>, StreamError> {
        let mut chunk = None;
        let count = poll_fn(|cx| {
            self.reading(cx, bytes_max, |bytes| {
                chunk = Some(bytes);
                false
            })
        })
        .await?;
        Ok(count.and(chunk))
    }

    /// Takes the next chunks without copying, at most `chunks.len()`; returns their number, `None`
    /// at the end.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read_chunks(
        &mut self,
        chunks: &mut [Bytes],
    ) -> Result<Option<usize>, StreamError> {
        if chunks.is_empty() {
            return Ok(Some(0));
        }
        let mut filled = 0;
        let count = poll_fn(|cx| {
            self.reading(cx, usize::MAX, |bytes| {
                chunks[filled] = bytes;
                filled += 1;
                filled < chunks.len()
            })
        })
        .await?;
        Ok(count.map(|_| filled))
    }

    /// Reads to the end of the stream.
    ///
    /// # Errors
    /// [`StreamError::TooLong`] if there is more than `limit`; the stream is stopped with code 0.
    ///
    /// # Cancel safety
    /// Not cancel safe: data already read is lost.
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Vec<u8>, StreamError> {
        let mut all = Vec::new();
        loop {
            // Read one byte more than allowed, to detect an excess.
            let room = (limit - all.len()).saturating_add(1);
            let read = poll_fn(|cx| {
                self.reading(cx, room, |bytes| {
                    all.extend_from_slice(&bytes);
                    true
                })
            })
            .await?;
            if all.len() > limit {
                drop(self.stop(0));
                return Err(StreamError::TooLong);
            }
            if read.is_none() {
                return Ok(all);
            }
        }
    }

    /// Puts back the last bytes read: the next read returns them first.
    pub fn put_back(&mut self, bytes: Bytes) {
        self.half.put_back(std::iter::once(bytes));
    }

    /// `None` at the end.
    fn reading(
        &mut self,
        cx: &Context<'_>,
        bytes_max: usize,
        mut take: impl FnMut(Bytes) -> bool,
    ) -> Poll<Result<Option<usize>, StreamError>> {
        if let Some(known) = self.half.read_known(bytes_max, &mut take) {
            return Poll::Ready(known.map(count_of));
        }
        let half = &mut self.half;
        let mut has_credit = false;
        let wait = Wait::Read(half.id());
        let result = self.inner.poll_stream(cx, wait, |connection, session| {
            match half.read(connection, session, bytes_max, &mut take) {
                Ok(Read::Blocked) => None,
                read => {
                    has_credit = !matches!(read, Err(StreamError::Closed));
                    Some(read.map(count_of))
                }
            }
        });
        if has_credit {
            self.inner.shared.wake();
        }
        result
    }

    /// Stops the stream with the application's code: the peer need not send more.
    ///
    /// # Errors
    /// [`StreamError::Closed`] if it has ended.
    pub fn stop(&mut self, code: u64) -> Result<(), StreamError> {
        if !self.half.close() {
            return Err(StreamError::Closed);
        }
        self.inner.act(|connection, session| {
            self.half.check(session)?;
            connection.stop(self.half.id(), code)
        })
    }
}

/// The count of bytes; `None` at the end.
fn count_of(read: Read) -> Option<usize> {
    match read {
        Read::Blocked | Read::End(0) => None,
        Read::Some(count) | Read::End(count) => Some(count),
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        let _left = self.inner.with(|_, session| {
            // The id may have been reused.
            self.half.check_early(session).ok()?;
            Some(session.attached.forget(&[Wait::Read(self.id())]))
        });
        drop(self.stop(0));
    }
}
