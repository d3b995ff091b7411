//! Frames: messages with bounds in a stream of bytes.
//!
//! Owns: [`Framed`] and [`FramedWrite`], the traits of codecs, and two codecs: lines, and frames with
//! their length in front. Called by: applications, with codecs of their own too.

use super::buffered::{BufReader, utf8, without_end};
use super::traits::{AsyncWrite, StartRead};
use crate::limits;
use std::io;

/// Finds messages in received bytes.
pub trait Decoder {
    /// A message.
    type Item;

    /// The first message in `bytes`, and the count of bytes that it takes, at least one; `None` if more
    /// bytes are needed.
    ///
    /// # Errors
    /// Of bytes that are no message. The stream is of no use then.
    fn decode(&mut self, bytes: &[u8]) -> io::Result<Option<(Self::Item, usize)>>;

    /// As [`Decoder::decode`], once the stream has ended with `bytes` left, at least one.
    ///
    /// # Errors
    /// `UnexpectedEof` for a part of a message, unless the codec has an unended last one.
    fn decode_last(&mut self, bytes: &[u8]) -> io::Result<Option<(Self::Item, usize)>> {
        match self.decode(bytes)? {
            Some(last) => Ok(Some(last)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The longest message in bytes, with what frames it: more are not buffered.
    fn frame_max(&self) -> usize;
}

/// Writes messages as bytes.
pub trait Encoder<T> {
    /// Appends `message` to `bytes`.
    ///
    /// # Errors
    /// `InvalidInput` for a message that cannot be framed; nothing is appended then.
    fn encode(&mut self, message: T, bytes: &mut Vec<u8>) -> io::Result<()>;
}

/// A stream of messages, by a codec; also one direction of a split stream to read from.
///
/// ```
/// use ringloop::io::{Framed, FramedWrite, LengthDelimited};
/// use ringloop::net::UnixStream;
///
/// # ringloop::Runtime::new()?.block_on(async {
/// let (ours, peer) = UnixStream::pair()?;
/// let mut ours = Framed::new(ours, LengthDelimited::new(1024));
/// let mut peer = Framed::new(peer, LengthDelimited::new(1024));
/// peer.send("one").await?;
/// peer.send("two").await?;
/// drop(peer);
/// assert_eq!(ours.next().await?.as_deref(), Some(&b"one"[..]));
/// assert_eq!(ours.next().await?.as_deref(), Some(&b"two"[..]));
/// assert_eq!(ours.next().await?, None);
/// # std::io::Result::Ok(())
/// # })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Framed<S: StartRead, C> {
    reader: BufReader<S>,
    codec: C,
    /// Encoded and not sent.
    unsent: Vec<u8>,
}

impl<S: StartRead, C> Framed<S, C> {
    /// The messages of `stream`.
    pub fn new(stream: S, codec: C) -> Self {
        BufReader::new(stream).framed(codec)
    }

    /// The codec, whose state may be read and changed.
    pub fn codec_mut(&mut self) -> &mut C {
        &mut self.codec
    }

    /// The stream.
    pub fn get_ref(&self) -> &S {
        self.reader.get_ref()
    }

    /// The stream with the bytes after the last message. Messages that were fed are dropped.
    pub fn into_inner(self) -> BufReader<S> {
        self.reader
    }
}

impl<S: StartRead> BufReader<S> {
    /// The messages of this stream, from here on.
    pub fn framed<C>(self, codec: C) -> Framed<S, C> {
        Framed { reader: self, codec, unsent: Vec::new() }
    }
}

impl<S: StartRead, C: Decoder> Framed<S, C> {
    /// The next message; `None` at the end of the stream.
    ///
    /// # Errors
    /// The codec's; `InvalidData` for a message over [`Decoder::frame_max`]; `UnexpectedEof` if the stream
    /// ends within one; those of the stream.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> io::Result<Option<C::Item>> {
        loop {
            let unread = self.reader.buffer();
            if !unread.is_empty()
                && let Some((item, len)) = self.codec.decode(unread)?
            {
                self.reader.consume(len);
                return Ok(Some(item));
            }
            if unread.len() > self.codec.frame_max() {
                return Err(too_long(io::ErrorKind::InvalidData, self.codec.frame_max()));
            }
            if self.reader.fill_more().await? == 0 {
                return self.last();
            }
        }
    }

    fn last(&mut self) -> io::Result<Option<C::Item>> {
        if self.reader.buffer().is_empty() {
            return Ok(None);
        }
        let last = self.codec.decode_last(self.reader.buffer())?;
        Ok(last.map(|(item, len)| {
            self.reader.consume(len);
            item
        }))
    }
}

impl<S: StartRead + AsyncWrite, C> Framed<S, C> {
    /// Sends `message`, after the messages fed before.
    ///
    /// # Errors
    /// The codec's, and those of the stream.
    ///
    /// # Cancel safety
    /// Not cancel safe: a part of the message may have been sent.
    pub async fn send<T>(&mut self, message: T) -> io::Result<()>
    where
        C: Encoder<T>,
    {
        self.feed(message)?;
        self.flush().await
    }

    /// Encodes `message`, to be sent by the next [`Framed::send`] or [`Framed::flush`]: many small
    /// messages in one write. Flush before the caller's own limit of memory.
    ///
    /// # Errors
    /// The codec's.
    pub fn feed<T>(&mut self, message: T) -> io::Result<()>
    where
        C: Encoder<T>,
    {
        self.codec.encode(message, &mut self.unsent)
    }

    /// Sends the messages that were fed.
    ///
    /// # Errors
    /// Those of the stream.
    ///
    /// # Cancel safety
    /// As [`Framed::send`].
    pub async fn flush(&mut self) -> io::Result<()> {
        flush(self.reader.get_mut(), &mut self.unsent).await
    }
}

/// The writing half of a split stream as a sink of messages.
#[derive(Debug)]
pub struct FramedWrite<W, C> {
    sink: W,
    codec: C,
    unsent: Vec<u8>,
}

impl<W: AsyncWrite, C> FramedWrite<W, C> {
    /// Messages to `sink`.
    pub fn new(sink: W, codec: C) -> Self {
        Self { sink, codec, unsent: Vec::new() }
    }

    /// As [`Framed::send`].
    ///
    /// # Errors
    /// As [`Framed::send`].
    ///
    /// # Cancel safety
    /// As [`Framed::send`].
    pub async fn send<T>(&mut self, message: T) -> io::Result<()>
    where
        C: Encoder<T>,
    {
        self.feed(message)?;
        self.flush().await
    }

    /// As [`Framed::feed`].
    ///
    /// # Errors
    /// As [`Framed::feed`].
    pub fn feed<T>(&mut self, message: T) -> io::Result<()>
    where
        C: Encoder<T>,
    {
        self.codec.encode(message, &mut self.unsent)
    }

    /// As [`Framed::flush`].
    ///
    /// # Errors
    /// As [`Framed::flush`].
    ///
    /// # Cancel safety
    /// As [`Framed::send`].
    pub async fn flush(&mut self) -> io::Result<()> {
        flush(&mut self.sink, &mut self.unsent).await
    }

    /// The sink. Messages that were fed are dropped.
    pub fn into_inner(self) -> W {
        self.sink
    }
}

async fn flush<W: AsyncWrite>(sink: &mut W, unsent: &mut Vec<u8>) -> io::Result<()> {
    if unsent.is_empty() {
        return Ok(());
    }
    let (sent, mut buf) = sink.write_all(std::mem::take(unsent)).await;
    // Its memory is used again, unless a long message has made it large.
    if buf.capacity() <= limits::COPY_BYTES_MIN {
        buf.clear();
        *unsent = buf;
    }
    sent
}

fn too_long(kind: io::ErrorKind, max: usize) -> io::Error {
    io::Error::new(kind, format!("a frame is longer than the maximum of {max} bytes"))
}

/// Lines of UTF-8: received without their `\n` or `\r\n`, sent with `\n`.
#[derive(Debug, Clone, Copy)]
pub struct LinesCodec {
    max: usize,
}

impl LinesCodec {
    /// Lines of at most `max` bytes, with their end.
    pub fn new(max: usize) -> Self {
        Self { max }
    }

    fn line(self, bytes: &[u8]) -> io::Result<Option<(String, usize)>> {
        if bytes.len() > self.max {
            return Err(too_long(io::ErrorKind::InvalidData, self.max));
        }
        Ok(Some((without_end(utf8(bytes)?).to_owned(), bytes.len())))
    }
}

impl Default for LinesCodec {
    /// Lines of at most [`limits::RECORD_BYTES_MAX`](crate::embed::limits::RECORD_BYTES_MAX) bytes.
    fn default() -> Self {
        Self::new(limits::RECORD_BYTES_MAX)
    }
}

impl Decoder for LinesCodec {
    type Item = String;

    fn decode(&mut self, bytes: &[u8]) -> io::Result<Option<(String, usize)>> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        end.map_or(Ok(None), |end| self.line(&bytes[..=end]))
    }

    fn decode_last(&mut self, bytes: &[u8]) -> io::Result<Option<(String, usize)>> {
        match self.decode(bytes)? {
            Some(line) => Ok(Some(line)),
            None => self.line(bytes),
        }
    }

    fn frame_max(&self) -> usize {
        self.max
    }
}

impl<T: AsRef<str>> Encoder<T> for LinesCodec {
    fn encode(&mut self, line: T, bytes: &mut Vec<u8>) -> io::Result<()> {
        let line = line.as_ref().as_bytes();
        if line.len() >= self.max {
            return Err(too_long(io::ErrorKind::InvalidInput, self.max));
        }
        if line.contains(&b'\n') {
            let text = "a line cannot contain a newline";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
        Ok(())
    }
}

/// Frames with their length in front: by default four bytes, the most significant first, which do not
/// count themselves.
#[derive(Debug, Clone, Copy)]
pub struct LengthDelimited {
    max: usize,
    width: usize,
    is_little_endian: bool,
}

impl LengthDelimited {
    /// Frames of at most `max` bytes, without their length.
    pub fn new(max: usize) -> Self {
        Self { max, width: 4, is_little_endian: false }
    }

    /// Has lengths take `bytes`, at least 1 and at most 8.
    #[must_use]
    pub fn with_length_bytes(self, bytes: usize) -> Self {
        Self { width: bytes.clamp(1, 8), ..self }
    }

    /// Has lengths begin with their least significant byte.
    #[must_use]
    pub fn little_endian(self) -> Self {
        Self { is_little_endian: true, ..self }
    }
}

impl Decoder for LengthDelimited {
    type Item = Vec<u8>;

    fn decode(&mut self, bytes: &[u8]) -> io::Result<Option<(Vec<u8>, usize)>> {
        let Some((head, rest)) = bytes.split_at_checked(self.width) else {
            return Ok(None);
        };
        let push = |len: u64, byte: &u8| (len << 8) | u64::from(*byte);
        let len = if self.is_little_endian {
            head.iter().rev().fold(0, push)
        } else {
            head.iter().fold(0, push)
        };
        match usize::try_from(len) {
            Ok(len) if len <= self.max => {
                Ok(rest.get(..len).map(|frame| (frame.to_vec(), self.width + len)))
            }
            _ => Err(too_long(io::ErrorKind::InvalidData, self.max)),
        }
    }

    fn frame_max(&self) -> usize {
        self.max.saturating_add(self.width)
    }
}

impl<T: AsRef<[u8]>> Encoder<T> for LengthDelimited {
    fn encode(&mut self, frame: T, bytes: &mut Vec<u8>) -> io::Result<()> {
        let frame = frame.as_ref();
        let len = frame.len() as u64;
        let fits = self.width == 8 || len >> (8 * self.width) == 0;
        if frame.len() > self.max || !fits {
            return Err(too_long(io::ErrorKind::InvalidInput, self.max));
        }
        if self.is_little_endian {
            bytes.extend_from_slice(&len.to_le_bytes()[..self.width]);
        } else {
            bytes.extend_from_slice(&len.to_be_bytes()[8 - self.width..]);
        }
        bytes.extend_from_slice(frame);
        Ok(())
    }
}
