//! Walks the frames of a packet's payload.
//!
//! Called by: `reset_at`, `final_sizes`. Validates nothing: the engine reads the same bytes. A frame that does not
//! parse ends the walk.

use crate::proto::reader::Reader;
use std::ops::{Range, RangeInclusive};

/// draft-ietf-quic-reliable-stream-reset §4: stream, code, final size, reliable size.
pub(super) const RESET_STREAM_AT: u8 = 0x24;

/// A frame, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    Ack,
    /// Bytes from `offset` on.
    Stream {
        stream: u64,
        offset: u64,
        len: u64,
        fin: bool,
    },
    Reset {
        stream: u64,
        code: u64,
        final_size: u64,
    },
    ResetAt(ResetAt),
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResetAt {
    pub stream: u64,
    pub code: u64,
    pub final_size: u64,
    pub reliable_size: u64,
}

/// The frame that begins at `at`, and its range; `None` at the end, and if it does not parse.
pub(super) fn next(payload: &[u8], at: usize) -> Option<(Frame, Range<usize>)> {
    let mut reader = Reader(payload.get(at..).filter(|rest| !rest.is_empty())?);
    let frame = read(&mut reader)?;
    Some((frame, at..payload.len() - reader.0.len()))
}

fn read(reader: &mut Reader<'_>) -> Option<Frame> {
    let kind = reader.number()?;
    match kind {
        0x00 => {
            let padding = reader.0.iter().take_while(|&&byte| byte == 0).count();
            reader.take(padding)?;
        }
        0x02 | 0x03 => {
            ack(reader, kind == 0x03, |_| {})?;
            return Some(Frame::Ack);
        }
        0x04 => {
            return Some(Frame::Reset {
                stream: reader.number()?,
                code: reader.number()?,
                final_size: reader.number()?,
            });
        }
        0x06 => {
            reader.number()?;
            reader.take_counted()?;
        }
        0x08..=0x0f => return stream(reader, kind),
        0x24 => {
            return Some(Frame::ResetAt(ResetAt {
                stream: reader.number()?,
                code: reader.number()?,
                final_size: reader.number()?,
                reliable_size: reader.number()?,
            }));
        }
        // NEW_TOKEN, and DATAGRAM with its length.
        0x07 | 0x31 => {
            reader.take_counted()?;
        }
        // DATAGRAM to the end of the packet.
        0x30 => reader.0 = &[],
        0x18 => {
            numbers(reader, 2)?;
            let id_len = usize::from(*reader.take(1)?.first()?);
            reader.take(id_len + 16)?;
        }
        // PATH_CHALLENGE, PATH_RESPONSE.
        0x1a | 0x1b => {
            reader.take(8)?;
        }
        0x1c | 0x1d => {
            numbers(reader, if kind == 0x1c { 2 } else { 1 })?;
            reader.take_counted()?;
        }
        _ => numbers(reader, count_of(kind)?)?,
    }
    Some(Frame::Other)
}

/// How many integers a frame of this type consists of, if it has nothing else.
fn count_of(kind: u64) -> Option<usize> {
    Some(match kind {
        // PING, HANDSHAKE_DONE, IMMEDIATE_ACK.
        0x01 | 0x1e | 0x1f => 0,
        // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID.
        0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => 1,
        // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED.
        0x05 | 0x11 | 0x15 => 2,
        // ACK_FREQUENCY.
        0xaf => 4,
        _ => return None,
    })
}

fn numbers(reader: &mut Reader<'_>, count: usize) -> Option<()> {
    (0..count).try_for_each(|_| reader.number().map(drop))
}

fn stream(reader: &mut Reader<'_>, kind: u64) -> Option<Frame> {
    let stream = reader.number()?;
    let offset = if kind & 4 != 0 { reader.number()? } else { 0 };
    let data = match kind & 2 {
        0 => std::mem::take(&mut reader.0),
        _ => reader.take_counted()?,
    };
    Some(Frame::Stream { stream, offset, len: data.len() as u64, fin: kind & 1 != 0 })
}

/// Passes the packet numbers that an ACK frame acknowledges to `each`.
pub(super) fn acknowledged(frame: &[u8], each: impl FnMut(RangeInclusive<u64>)) {
    let mut reader = Reader(frame);
    let _ = reader.number().and_then(|kind| ack(&mut reader, kind == 0x03, each));
}

fn ack(
    reader: &mut Reader<'_>,
    has_ecn: bool,
    mut each: impl FnMut(RangeInclusive<u64>),
) -> Option<()> {
    let largest = reader.number()?;
    reader.number()?;
    let range_count = reader.number()?;
    let mut smallest = largest.checked_sub(reader.number()?)?;
    each(smallest..=largest);
    for _range in 0..range_count {
        let end = smallest.checked_sub(reader.number()?.checked_add(2)?)?;
        smallest = end.checked_sub(reader.number()?)?;
        each(smallest..=end);
    }
    numbers(reader, if has_ecn { 3 } else { 0 })
}
