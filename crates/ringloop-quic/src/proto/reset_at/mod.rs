//! `RESET_STREAM_AT` (draft-ietf-quic-reliable-stream-reset) on top of an engine that does not know
//! it: a reset that delivers the stream's first bytes.
//!
//! Receiving: the packet keys rewrite the frame as the end of the stream, and store the code and the
//! reliable size for `core`, which reports the reset. Sending: they record which packets carry the
//! bytes to be delivered and whether these are acknowledged, and rewrite the engine's `RESET_STREAM`.
//!
//! Owns: what a connection shares with its packet keys ([`Shared`]). Called by: `session`, which
//! makes the keys; `core`. Design: `docs/decisions/0023-reset-stream-at.md`.
//!
//! Invariants:
//! 1. A payload is rewritten frame by frame; from the first that does not parse, it is unchanged.
//! 2. A repeated packet changes nothing: keys open a packet before the engine drops duplicates.
//! 3. A received reset is kept while the engine has the stream's receiving half; `core` ensures
//!    that after each datagram.
//! 4. The room in each packet changes only between calls of the engine's `poll_transmit`.

mod key;
#[cfg(test)]
mod tests;

pub(super) use key::Translated;

use crate::proto::frames::{self, Frame, RESET_STREAM_AT, ResetAt};
use crate::proto::reader::Reader;
use quinn_proto::{Side, TransportError, TransportErrorCode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The transport parameter: its number in the newest draft, and up to draft 07.
const PARAMETERS: [u64; 2] = [0x1d, 0x0017_f758_6d2c_b571];

/// Resets in flight at a time, each of which needs a byte of room in every packet.
pub(crate) const ROOM_MAX: usize = 32;

/// Bytes that may be delivered reliably: less than 64, so that the size is one byte on the wire.
pub(crate) const RELIABLE_MAX: usize = 63;

/// Packets with the first bytes of a stream that are remembered: more than probes (RFC 9002 §6.2.4) can be in
/// flight. Older ones are lost, or the peer acknowledges what it likes.
const COPIES_MAX: u8 = 64;

/// A reset that the peer sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    pub code: u64,
    /// The smallest that was sent.
    pub reliable_size: u64,
}

/// State shared by a connection and its packet keys.
#[derive(Debug)]
pub(crate) struct Shared {
    side: Side,
    room: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_taken_by_peer: bool,
    /// By stream.
    received: HashMap<u64, Received>,
    /// Streams in `received` that `core` has not seen.
    arrived: Vec<u64>,
    /// Streams of ours whose first bytes a reset will deliver.
    heads: HashMap<u64, Head>,
    /// Packets that carry such bytes that are not acknowledged, by rising number.
    packets: Vec<Carried>,
    /// Streams whose reset is in flight, and their reliable size.
    resetting: HashMap<u64, u8>,
}

/// The first bytes of a stream, as bits.
#[derive(Debug, Clone, Copy)]
struct Head {
    len: u8,
    acknowledged: u64,
    /// How many of the packets carry some of it.
    copies: u8,
}

impl Head {
    /// The bits of the bytes in this range that belong to it.
    fn bits(self, offset: u64, len: u64) -> u64 {
        let up_to = |end: u64| (1u64 << end.min(u64::from(self.len))) - 1;
        up_to(offset.saturating_add(len)) & !up_to(offset)
    }

    fn is_acknowledged(self) -> bool {
        self.acknowledged == self.bits(0, u64::from(self.len))
    }
}

#[derive(Debug)]
struct Carried {
    number: u64,
    stream: u64,
    bits: u64,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Makes the connection that `begin` creates announce the extension.
pub(crate) fn with<T>(shared: Option<Arc<Shared>>, begin: impl FnOnce() -> T) -> T {
    CURRENT.set(shared);
    let result = begin();
    CURRENT.set(None);
    result
}

/// The state of the connection that this thread is creating.
pub(super) fn current() -> Option<Arc<Shared>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Appends the parameter, under both numbers, to encoded ones.
pub(super) fn announce(parameters: &mut Vec<u8>) {
    let [new, old] = PARAMETERS;
    parameters.extend([new as u8, 0]);
    parameters.extend((old | 3 << 62).to_be_bytes());
    parameters.push(0);
}

impl Shared {
    pub(crate) fn new(side: Side) -> Arc<Self> {
        Arc::new(Self { side, room: AtomicUsize::new(0), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the parameter, which must have no value, in the peer's.
    pub(super) fn read_parameters(&self, parameters: &[u8]) -> Result<(), TransportError> {
        let mut reader = Reader(parameters);
        while let Some(number) = reader.number()
            && let Some(value) = reader.take_counted()
        {
            if !PARAMETERS.contains(&number) {
                continue;
            }
            if !value.is_empty() {
                return Err(TransportError {
                    code: TransportErrorCode::TRANSPORT_PARAMETER_ERROR,
                    frame: None,
                    reason: "reset_stream_at has a value".to_owned(),
                });
            }
            self.state().is_taken_by_peer = true;
        }
        Ok(())
    }

    /// Whether the peer supports the frame; known once the handshake is complete.
    pub(crate) fn is_taken_by_peer(&self) -> bool {
        self.state().is_taken_by_peer
    }

    /// The reset of a stream that the peer sent.
    pub(crate) fn received(&self, stream: u64) -> Option<Received> {
        self.state().received.get(&stream).copied()
    }

    /// The engine's receiving half of the stream is gone.
    pub(crate) fn forget_received(&self, stream: u64) -> Option<Received> {
        self.state().received.remove(&stream)
    }

    /// Streams that were reset since the last call.
    pub(crate) fn take_arrived(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().arrived)
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> [usize; 4] {
        let state = self.state();
        [state.received.len(), state.heads.len(), state.packets.len(), state.resetting.len()]
    }

    /// A reset of this stream will deliver its first `len` bytes, at most [`RELIABLE_MAX`].
    pub(crate) fn keep_head(&self, stream: u64, len: u8) {
        self.state().heads.insert(stream, Head { len, acknowledged: 0, copies: 0 });
    }

    /// How many of the stream's first bytes a reset delivers, and whether they are acknowledged.
    pub(crate) fn head(&self, stream: u64) -> Option<(u8, bool)> {
        let state = self.state();
        state.heads.get(&stream).map(|head| (head.len, head.is_acknowledged()))
    }

    /// A reset of the stream no longer needs to deliver anything.
    pub(crate) fn forget_head(&self, stream: u64) {
        let mut state = self.state();
        if state.heads.remove(&stream).is_some() {
            state.packets.retain(|carried| carried.stream != stream);
        }
    }

    /// The stream is being reset: its `RESET_STREAM` frames are rewritten. `false` if that many are
    /// in flight already.
    pub(crate) fn begin_reset(&self, stream: u64) -> bool {
        let mut state = self.state();
        if state.resetting.len() == ROOM_MAX {
            return false;
        }
        if let Some(head) = state.heads.remove(&stream) {
            state.resetting.insert(stream, head.len);
        }
        true
    }

    /// Streams whose reset is in flight.
    pub(crate) fn resetting(&self) -> Vec<u64> {
        self.state().resetting.keys().copied().collect()
    }

    /// The reset is acknowledged.
    pub(crate) fn end_reset(&self, stream: u64) {
        self.state().resetting.remove(&stream);
    }

    /// Leaves a byte of room in each packet for each reset in flight. Not while the engine builds
    /// packets.
    pub(crate) fn make_room(&self) {
        self.room.store(self.state().resetting.len(), Ordering::Relaxed);
    }

    /// Bytes of room in each packet.
    pub(crate) fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }
}

impl State {
    /// Rewrites the peer's frames for the engine.
    fn on_opened(&mut self, side: Side, payload: &mut [u8]) {
        let mut at = 0;
        while let Some((frame, place)) = frames::next(payload, at) {
            at = place.end;
            match frame {
                Frame::Ack if !self.packets.is_empty() => {
                    frames::acknowledged(&payload[place], |numbers| self.on_acknowledged(&numbers));
                }
                Frame::Reset { stream, code, .. } if self.contradicts(stream, code) => {
                    refuse(side, &mut payload[place]);
                }
                Frame::ResetAt(reset) => {
                    // The engine closes the connection on unknown frames.
                    if reset.reliable_size > reset.final_size {
                        return;
                    }
                    if self.contradicts(reset.stream, reset.code) {
                        refuse(side, &mut payload[place]);
                    } else {
                        self.on_reset(reset);
                        finish(&mut payload[place]);
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether another code was received for the stream.
    fn contradicts(&self, stream: u64, code: u64) -> bool {
        self.received.get(&stream).is_some_and(|known| known.code != code)
    }

    fn on_reset(&mut self, reset: ResetAt) {
        let ResetAt { stream, code, reliable_size, .. } = reset;
        let entry = self.received.entry(stream).or_insert(Received { code, reliable_size });
        entry.reliable_size = entry.reliable_size.min(reliable_size);
        self.arrived.push(stream);
    }

    fn on_acknowledged(&mut self, numbers: &RangeInclusive<u64>) {
        let Self { packets, heads, .. } = self;
        let from = packets.partition_point(|carried| carried.number < *numbers.start());
        let to = packets.partition_point(|carried| carried.number <= *numbers.end());
        let mut is_complete = false;
        for Carried { stream, bits, .. } in packets.drain(from..to) {
            if let Some(head) = heads.get_mut(&stream) {
                head.acknowledged |= bits;
                head.copies = head.copies.saturating_sub(1);
                is_complete |= head.is_acknowledged();
            }
        }
        if is_complete {
            packets.retain(|carried| {
                heads.get(&carried.stream).is_some_and(|head| !head.is_acknowledged())
            });
        }
    }

    /// Records which of the streams' first bytes this packet carries.
    fn note_heads(&mut self, number: u64, payload: &[u8]) {
        if self.heads.is_empty() {
            return;
        }
        let mut at = 0;
        while let Some((frame, place)) = frames::next(payload, at) {
            at = place.end;
            if let Frame::Stream { stream, offset, len, .. } = frame
                && let Some(head) = self.heads.get_mut(&stream)
            {
                let bits = head.bits(offset, len) & !head.acknowledged;
                if bits == 0 {
                    continue;
                }
                if head.copies < COPIES_MAX {
                    head.copies += 1;
                } else if let Some(oldest) =
                    self.packets.iter().position(|old| old.stream == stream)
                {
                    self.packets.remove(oldest);
                }
                self.packets.push(Carried { number, stream, bits });
            }
        }
    }

    /// Rewrites `RESET_STREAM` frames of streams whose first bytes are to be delivered; the payload
    /// has this many bytes of room at its end, and is filled up with PADDING in front.
    fn expand(&self, payload: &mut [u8], room: usize) {
        let used = payload.len().saturating_sub(room);
        let plain = payload[..used].to_vec();
        let (mut at, mut places) = (0, Vec::new());
        while places.len() < room
            && let Some((frame, place)) = frames::next(&plain, at)
        {
            at = place.end;
            if let Frame::Reset { stream, .. } = frame
                && let Some(&reliable_size) = self.resetting.get(&stream)
            {
                places.push((place, reliable_size));
            }
        }
        let padding = payload.len() - used - places.len();
        payload[..padding].fill(0);
        let (mut from, mut to) = (0, padding);
        for (place, reliable_size) in places {
            payload[to..to + place.end - from].copy_from_slice(&plain[from..place.end]);
            payload[to + place.start - from] = RESET_STREAM_AT;
            to += place.end - from;
            payload[to] = reliable_size;
            (from, to) = (place.end, to + 1);
        }
        payload[to..].copy_from_slice(&plain[from..]);
    }
}

/// `RESET_STREAM_AT` becomes a STREAM frame with the end of the stream, and PADDING.
fn finish(frame: &mut [u8]) {
    const STREAM_WITH_OFFSET_LENGTH_AND_FIN: u8 = 0x0f;
    let mut reader = Reader(frame);
    let mut skip = |count: usize| {
        for _ in 0..count {
            reader.number();
        }
        frame.len() - reader.0.len()
    };
    let (stream, code, final_size, end) = (skip(1), skip(1), skip(1), skip(1));
    let mut new = vec![STREAM_WITH_OFFSET_LENGTH_AND_FIN];
    new.extend_from_slice(&frame[stream..code]);
    new.extend_from_slice(&frame[final_size..end]);
    new.push(0);
    replace(frame, &new);
}

/// Replaces a frame with another code than before by one that the engine answers as §5.2 of the
/// draft requires: with `STREAM_STATE_ERROR`, for an empty STREAM frame of a stream on which only
/// this end sends.
fn refuse(side: Side, frame: &mut [u8]) {
    const STREAM_WITH_LENGTH: u8 = 0x0a;
    let ours = match side {
        Side::Client => 2,
        Side::Server => 3,
    };
    replace(frame, &[STREAM_WITH_LENGTH, ours, 0]);
}

/// Replaces a frame by a shorter one and PADDING.
fn replace(frame: &mut [u8], new: &[u8]) {
    let (front, rest) = frame.split_at_mut(new.len());
    front.copy_from_slice(new);
    rest.fill(0);
}

/// Rewrites an arbitrary payload both ways, and checks that its length stays and that nothing is
/// left to rewrite.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzzed(data: &[u8]) {
    let mut state = State::default();
    state.packets.push(Carried { number: 5, stream: 2, bits: 1 });
    state.heads.insert(2, Head { len: 9, acknowledged: 0, copies: 1 });
    state.note_heads(6, data);
    let mut payload = data.to_vec();
    state.on_opened(Side::Server, &mut payload);
    let once = payload.clone();
    State::default().on_opened(Side::Server, &mut payload);
    assert_eq!(once, payload);
    let room = data.first().map_or(0, |&first| usize::from(first) % (ROOM_MAX + 1));
    state.resetting.extend((0..8).map(|stream| (stream, 7)));
    let mut expanded = data.to_vec();
    expanded.resize(data.len() + room, 0);
    state.expand(&mut expanded, room);
    let (mut expected, mut at, mut left) = (Vec::new(), 0, room);
    while let Some((frame, place)) = frames::next(data, at) {
        at = place.end;
        let from = expected.len();
        expected.extend_from_slice(&data[place]);
        if matches!(frame, Frame::Reset { stream: 0..8, .. }) && left > 0 {
            expected[from] = RESET_STREAM_AT;
            expected.push(7);
            left -= 1;
        }
    }
    expected.extend_from_slice(&data[at..]);
    assert_eq!(expanded, [vec![0; left], expected].concat());
}
