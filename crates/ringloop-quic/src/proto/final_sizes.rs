//! Final sizes of the peer's streams (RFC 9000 §4.5), read from its frames.
//!
//! The engine does not expose them: for a stream that was reset or stopped, an application cannot
//! learn how many bytes the peer counts. Owns: the final sizes in packets that this thread opens
//! while it is [watched](watch). Called by: `keys` with opened packets, `core` around a datagram of
//! a connection that wants them. Also reads frames that the engine will reject: the connection ends
//! then.

use super::frames::{self, Frame};
use std::cell::{Cell, RefCell};

/// A stream's id and final size.
pub(crate) type FinalSize = (u64, u64);

thread_local! {
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    static FOUND: RefCell<Vec<FinalSize>> = const { RefCell::new(Vec::new()) };
}

/// Watches the packets that this thread opens, until [`take`].
pub(crate) fn watch() {
    IS_WATCHED.set(true);
}

/// The final sizes found since [`watch`].
pub(crate) fn take() -> Vec<FinalSize> {
    IS_WATCHED.set(false);
    FOUND.take()
}

/// Looks at the frames of a packet; the engine rejects invalid ones.
pub(super) fn look(payload: &[u8]) {
    if IS_WATCHED.get() {
        FOUND.with_borrow_mut(|found| read(payload, found));
    }
}

fn read(payload: &[u8], found: &mut Vec<FinalSize>) {
    let mut at = 0;
    while let Some((frame, place)) = frames::next(payload, at) {
        at = place.end;
        match frame {
            Frame::Stream { stream, offset, len, fin: true } => {
                found.push((stream, offset.saturating_add(len)));
            }
            Frame::Reset { stream, final_size, .. } => found.push((stream, final_size)),
            Frame::ResetAt(reset) => found.push((reset.stream, reset.final_size)),
            _ => {}
        }
    }
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
        payload.extend([0x03, 9, 0, 1, 0, 2, 0, 1, 1, 1]);
        // NEW_CONNECTION_ID with a long id.
        payload.extend([0x18, 1, 0, 4]);
        payload.extend([0x55; 4 + 16]);
        payload.extend([0x31, 2, b'd', b'g']);
        // RESET_STREAM of 3 at 16383.
        payload.extend([0x04, 3, 7, 0x7f, 0xff]);
        // RESET_STREAM_AT of 19 at 9, of which 2 are delivered.
        payload.extend([0x24, 19, 7, 9, 2]);
        // STREAM 7 with length and end, STREAM 11 without its end.
        payload.extend([0x0f, 7, 5, 2, b'a', b'b']);
        payload.extend([0x0a, 11, 1, b'c']);
        // STREAM 15 with its end, to the packet's end.
        payload.extend([0x09, 15, b'd', b'e', b'f']);
        assert_eq!(found(&payload), [(3, 16383), (19, 9), (7, 7), (15, 3)]);
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
