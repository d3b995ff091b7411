//! Final sizes of the peer's streams (RFC 9000 §4.5), read from its frames.
//!
//! The engine keeps them to itself: of a stream that was reset or stopped, an application does not
//! learn how many bytes the peer counts. Owns: what the packets that this thread opens have told
//! while it is [watched](watch). Called by: `keys` with opened packets, `core` around a datagram of
//! a connection that wants them. What the engine will refuse is read all the same: then the
//! connection ends.

use std::cell::{Cell, RefCell};

/// A stream's id and final size.
pub(crate) type FinalSize = (u64, u64);

thread_local! {
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    static FOUND: RefCell<Vec<FinalSize>> = const { RefCell::new(Vec::new()) };
}

/// Has the packets that this thread opens be looked at, until [`take`].
pub(crate) fn watch() {
    IS_WATCHED.set(true);
}

/// What was found since [`watch`].
pub(crate) fn take() -> Vec<FinalSize> {
    IS_WATCHED.set(false);
    FOUND.take()
}

/// Looks at the frames of a packet.
pub(super) fn look(payload: &[u8]) {
    if IS_WATCHED.get() {
        FOUND.with_borrow_mut(|found| {
            // What does not parse is for the engine to refuse.
            let _whole = read(payload, found);
        });
    }
}

fn read(mut rest: &[u8], found: &mut Vec<FinalSize>) -> Option<()> {
    let rest = &mut rest;
    while !rest.is_empty() {
        let kind = number(rest)?;
        match kind {
            // PADDING, PING, HANDSHAKE_DONE, IMMEDIATE_ACK.
            0x00 | 0x01 | 0x1e | 0x1f => {}
            0x02 | 0x03 => acknowledgement(rest, kind == 0x03)?,
            0x04 => {
                let [stream, _code, size] = [number(rest)?, number(rest)?, number(rest)?];
                found.push((stream, size));
            }
            // CRYPTO, NEW_TOKEN.
            0x06 => skip_numbers(rest, 1).and_then(|()| skip_counted(rest))?,
            0x07 => skip_counted(rest)?,
            0x08..=0x0f => stream(rest, kind, found)?,
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID.
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => skip_numbers(rest, 1)?,
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED.
            0x05 | 0x11 | 0x15 => skip_numbers(rest, 2)?,
            0x18 => {
                skip_numbers(rest, 2)?;
                let len = usize::from(skip(rest, 1)?[0]);
                skip(rest, len + RESET_TOKEN_LEN)?;
            }
            // PATH_CHALLENGE, PATH_RESPONSE.
            0x1a | 0x1b => skip(rest, 8).map(|_| ())?,
            0x31 => skip_counted(rest)?,
            // ACK_FREQUENCY.
            0xaf => skip_numbers(rest, 4)?,
            // CONNECTION_CLOSE, a DATAGRAM up to the packet's end, and what we do not know.
            _ => return None,
        }
    }
    Some(())
}

/// Bytes of a stateless reset token.
const RESET_TOKEN_LEN: usize = 16;

fn acknowledgement(rest: &mut &[u8], has_ecn: bool) -> Option<()> {
    skip_numbers(rest, 2)?;
    let range_count = number(rest)?;
    skip_numbers(rest, 1)?;
    for _ in 0..range_count {
        skip_numbers(rest, 2)?;
    }
    skip_numbers(rest, if has_ecn { 3 } else { 0 })
}

fn stream(rest: &mut &[u8], kind: u64, found: &mut Vec<FinalSize>) -> Option<()> {
    let stream = number(rest)?;
    let offset = if kind & 4 == 0 { 0 } else { number(rest)? };
    let len = match kind & 2 {
        0 => std::mem::take(rest).len() as u64,
        _ => {
            let len = number(rest)?;
            skip(rest, usize::try_from(len).ok()?)?;
            len
        }
    };
    if kind & 1 != 0 {
        found.push((stream, offset.checked_add(len)?));
    }
    Some(())
}

/// RFC 9000 §16.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let first = *rest.first()?;
    let bytes = skip(rest, 1 << (first >> 6))?;
    let start = u64::from(first & 0x3f);
    Some(bytes[1..].iter().fold(start, |value, byte| value << 8 | u64::from(*byte)))
}

fn skip_numbers(rest: &mut &[u8], count: usize) -> Option<()> {
    for _ in 0..count {
        number(rest)?;
    }
    Some(())
}

fn skip_counted(rest: &mut &[u8]) -> Option<()> {
    let len = number(rest)?;
    skip(rest, usize::try_from(len).ok()?).map(|_| ())
}

fn skip<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (skipped, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(payload: &[u8]) -> Vec<FinalSize> {
        watch();
        look(payload);
        take()
    }

    #[test]
    fn resets_and_ends_are_found_behind_other_frames() {
        let mut payload = vec![0x00, 0x01];
        // ACK of 9 and 5 with two ranges and ECN counts.
        payload.extend([0x03, 9, 0, 1, 0, 2, 1, 1, 1, 1]);
        // NEW_CONNECTION_ID with a long id.
        payload.extend([0x18, 1, 0, 4]);
        payload.extend([0x55; 4 + 16]);
        payload.extend([0x31, 2, b'd', b'g']);
        // RESET_STREAM of 3 at 16383.
        payload.extend([0x04, 3, 7, 0x7f, 0xff]);
        // STREAM 7 with length and end, STREAM 11 without its end.
        payload.extend([0x0f, 7, 5, 2, b'a', b'b']);
        payload.extend([0x0a, 11, 1, b'c']);
        // STREAM 15 with its end, to the packet's end.
        payload.extend([0x09, 15, b'd', b'e', b'f']);
        assert_eq!(found(&payload), [(3, 16383), (7, 7), (15, 3)]);
    }

    #[test]
    fn nothing_is_kept_unless_watched() {
        look(&[0x04, 3, 7, 1]);
        assert_eq!(found(&[]), []);
    }

    #[test]
    fn what_is_cut_off_or_unknown_ends_the_search() {
        assert_eq!(found(&[0x04, 3, 7]), []);
        assert_eq!(found(&[0x21, 0x04, 3, 7, 1]), []);
        assert_eq!(found(&[0x0b, 3, 0x40]), []);
        assert_eq!(found(&[0x02, 1, 0, 0xff]), []);
    }
}
