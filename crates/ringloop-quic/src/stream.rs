//! Streams as futures: writes wait for the peer's credit, reads return it.
//!
//! Owns: [`SendStream`], [`RecvStream`]. Called by: applications. No buffers of its own: data is in
//! the connection's bounded send and receive windows.

use crate::StreamId;
use crate::core::{Connection, Read, Written};
use crate::error::StreamError;
use crate::session::Wait;
use crate::shared::{Inner, Session};
use bytes::Bytes;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The sending end of a stream. Dropping it finishes the stream.
pub struct SendStream {
    inner: Rc<Inner>,
    id: StreamId,
    /// Opened before the handshake was complete.
    is_early: bool,
    is_over: bool,
    /// The code with which the peer stopped it, if a call has seen that, or with which it was reset
    /// locally. The engine forgets both once a reset is acknowledged.
    given_up: Option<u64>,
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendStream").field(&self.id.0).finish()
    }
}

impl SendStream {
    pub(crate) fn new(inner: &Rc<Inner>, id: StreamId, is_early: bool) -> Self {
        Self {
            inner: Rc::clone(inner),
            id,
            is_early,
            is_over: false,
            given_up: None,
        }
    }

    /// The stream's id.
    pub fn id(&self) -> StreamId {
        self.id
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
        let id = self.id;
        self.writing(cx, |connection| connection.write(id, bytes))
    }

    /// Writes what there is room for now; 0 if there is none.
    pub fn try_write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        let (id, is_early) = (self.id, self.is_early);
        let result = self.inner.act(|connection, session| {
            session.check_stream(is_early)?;
            Ok(match connection.write(id, bytes)? {
                Written::Some(count) => count,
                Written::Blocked => 0,
            })
        });
        self.note(&result);
        result
    }

    /// Remembers a stop that a result reports.
    fn note<T>(&mut self, result: &Result<T, StreamError>) {
        if let Err(StreamError::Stopped(code)) = result {
            self.given_up.get_or_insert(*code);
        }
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
        let id = self.id;
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
        let wait = Wait::Write(self.id);
        let polled = self.inner.poll_stream(cx, wait, |connection, session| {
            let written = session.check_stream(self.is_early);
            match written.and_then(|()| write(connection)) {
                Ok(Written::Some(count)) => Some(Ok(count)),
                Ok(Written::Blocked) => None,
                Err(error) => Some(Err(error)),
            }
        });
        self.inner.shared.wake();
        if let Poll::Ready(result) = &polled {
            self.note(result);
        }
        polled
    }

    /// Finishes the stream. The peer reads everything written, then the end.
    ///
    /// # Errors
    /// [`StreamError::Closed`] if it was finished or reset; [`StreamError::Stopped`] if the peer
    /// stopped it, and it is reset with the peer's code.
    pub fn finish(&mut self) -> Result<(), StreamError> {
        let (id, is_early) = (self.id, self.is_early);
        self.is_over = true;
        let result = self.inner.act(|connection, session| {
            session.check_stream(is_early)?;
            connection.finish(id)?;
            if connection.finishes_later(id) {
                session.note_finish(id);
            }
            Ok(())
        });
        self.note(&result);
        result
    }

    /// Resets the stream with the application's code; unacknowledged data may be lost.
    pub fn reset(&mut self, code: u64) -> Result<(), StreamError> {
        let (id, is_early) = (self.id, self.is_early);
        self.is_over = true;
        // An earlier stop by the peer wins.
        let (stopped, result) = self.inner.act(|connection, session| {
            if let Err(error) = session.check_stream(is_early) {
                return (None, Err(error));
            }
            let stopped = connection.stopped(id).ok().flatten();
            (stopped, connection.reset(id, code))
        });
        if result.is_ok() {
            self.given_up.get_or_insert(stopped.unwrap_or(code));
        }
        result
    }

    /// Waits until the peer has acknowledged everything, including the end (`None`), or stopped the
    /// stream (its application's code). After a local reset it returns the reset's code at once, or
    /// the peer's if that came first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn stopped(&mut self) -> Result<Option<u64>, StreamError> {
        let (id, is_early, given_up) = (self.id, self.is_early, &mut self.given_up);
        let inner = &self.inner;
        let mut ended = |connection: &mut Connection<'_>, session: &mut Session| {
            session.check_early(is_early)?;
            if given_up.is_some() {
                return Ok(Some(*given_up));
            }
            match connection.stopped(id) {
                Ok(Some(code)) => {
                    *given_up = Some(code);
                    Ok(Some(Some(code)))
                }
                Err(StreamError::Closed) => Ok(Some(session.stopped_after_finish(id))),
                _ => session.check_stream(is_early).map(|()| None),
            }
        };
        poll_fn(|cx| {
            inner.poll_stream(cx, Wait::Finished(id), |connection, session| {
                ended(connection, session).transpose()
            })
        })
        .await
    }

    /// Sets the priority: higher ones send first; 0 by default.
    pub fn set_priority(&mut self, priority: i32) -> Result<(), StreamError> {
        let (id, is_early) = (self.id, self.is_early);
        self.inner.with(|connection, session| {
            session.check_early(is_early)?;
            connection.set_priority(id, priority)
        })
    }

    /// The stream's priority.
    pub fn priority(&self) -> Result<i32, StreamError> {
        let (id, is_early) = (self.id, self.is_early);
        self.inner.with(|connection, session| {
            session.check_early(is_early)?;
            connection.priority(id)
        })
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let (id, is_early, is_over) = (self.id, self.is_early, self.is_over);
        let left = self.inner.with(|_, session| {
            // The id may have been reused.
            session.check_early(is_early).ok()?;
            session.forget_finish(id);
            let left = session
                .attached
                .forget(&[Wait::Write(id), Wait::Finished(id)]);
            Some((session.error().is_none(), left))
        });
        let Some((is_open, _left)) = left else {
            return;
        };
        if is_open && !is_over {
            drop(self.inner.act(|connection, _| connection.finish(id)));
        }
    }
}

/// The receiving end of a stream. Dropping it before the end stops the stream with code 0.
pub struct RecvStream {
    inner: Rc<Inner>,
    id: StreamId,
    is_early: bool,
    end: End,
}

/// How a stream ended for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// It was read completely.
    Read,
    /// The peer reset it with this code.
    Reset(u64),
    /// Stopped locally.
    Stopped,
}

impl fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecvStream").field(&self.id.0).finish()
    }
}

impl RecvStream {
    pub(crate) fn new(inner: &Rc<Inner>, id: StreamId, is_early: bool) -> Self {
        Self {
            inner: Rc::clone(inner),
            id,
            is_early,
            end: End::NotYet,
        }
    }

    /// The stream's id.
    pub fn id(&self) -> StreamId {
        self.id
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
            // One byte more than allowed detects an excess.
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

    /// `None` at the end.
    fn reading(
        &mut self,
        cx: &Context<'_>,
        bytes_max: usize,
        mut take: impl FnMut(Bytes) -> bool,
    ) -> Poll<Result<Option<usize>, StreamError>> {
        match self.end {
            End::NotYet => {}
            End::Read => return Poll::Ready(Ok(None)),
            End::Reset(code) => return Poll::Ready(Err(StreamError::Reset(code))),
            End::Stopped => return Poll::Ready(Err(StreamError::Closed)),
        }
        let (id, is_early, end) = (self.id, self.is_early, &mut self.end);
        let mut has_credit = false;
        let wait = Wait::Read(id);
        let result = self.inner.poll_stream(cx, wait, |connection, session| {
            let read = session.check_early(is_early);
            let read = read.and_then(|()| connection.read(id, bytes_max, &mut take));
            has_credit = !matches!(read, Ok(Read::Blocked) | Err(StreamError::Closed));
            Some(match read {
                Ok(Read::Some(count)) => Ok(Some(count)),
                Ok(Read::End(count)) => {
                    *end = End::Read;
                    Ok((count > 0).then_some(count))
                }
                // Data received before the connection ended is read first.
                Ok(Read::Blocked) => match session.check_stream(is_early) {
                    Ok(()) => return None,
                    Err(error) => Err(error),
                },
                Err(error) => {
                    if let StreamError::Reset(code) = error {
                        *end = End::Reset(code);
                    }
                    Err(error)
                }
            })
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
        if self.end != End::NotYet {
            return Err(StreamError::Closed);
        }
        let (id, is_early) = (self.id, self.is_early);
        self.end = End::Stopped;
        self.inner.act(|connection, session| {
            session.check_stream(is_early)?;
            connection.stop(id, code)
        })
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        let _left = self.inner.with(|_, session| {
            // The id may have been reused.
            session.check_early(self.is_early).ok()?;
            Some(session.attached.forget(&[Wait::Read(self.id)]))
        });
        if self.end == End::NotYet {
            drop(self.stop(0));
        }
    }
}
