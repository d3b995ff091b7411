//! Queue of outgoing datagrams, and counts of dropped ones; received ones that are not taken.
//!
//! The engine has a queue of its own, but nothing can be removed from it. So datagrams stay here,
//! where they can expire and make room, and move on when a message is built: one message's bytes at
//! a time, and [`EXPIRING_AHEAD_BYTES`] of those with a deadline. Both queues together hold
//! `Transport::datagram_send_buffer`; each datagram, even an empty one, counts [`EACH_BYTES`] in
//! addition to its length.
//!
//! Received datagrams wait in the engine, as parts of the GRO batches that they came in. Once many wait
//! they are copied to a queue here, so that small ones do not keep the whole batches.

use crate::config::Kept;
use crate::error::DatagramError;
use crate::limits::{
    DATAGRAMS_UNCOPIED_MAX, DATAGRAMS_UNCOPIED_PACKETS, EXPIRING_AHEAD_BYTES, MESSAGE_BYTES_MAX,
};
use crate::proto;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Instant;

/// What the engine's accounting adds per datagram, roughly.
const EACH_BYTES: usize = 32;

/// Why a datagram was not accepted.
#[derive(Debug)]
pub enum DatagramRefusal {
    /// No room: `Event::DatagramsUnblocked` follows. Returns the datagram.
    Blocked(Bytes),
    /// It will not be accepted later either.
    Error(DatagramError),
}

pub(super) struct Datagrams {
    /// Bytes that both queues may hold.
    buffer_max: usize,
    is_enabled: bool,
    queue: VecDeque<Waiting>,
    queued_bytes: usize,
    /// A sender was told to retry once this many bytes fit: the smallest length refused since.
    refused_len: Option<usize>,
    /// That much room is available, and the event is pending.
    is_unblocked: bool,
    pub(super) expired_count: u64,
    pub(super) dropped_count: u64,
    pub(super) unread_count: u64,
    taken_count: u64,
    received: Received,
}

/// Copies of received datagrams, older than what the engine has.
struct Received {
    copies: VecDeque<Bytes>,
    copied_bytes: usize,
    buffer_max: usize,
    /// Packets since the last look at what the engine has.
    packet_count: u32,
    /// Datagrams that the engine has given away, or dropped until it was last empty.
    left_engine_count: u64,
}

struct Waiting {
    bytes: Bytes,
    deadline: Option<Instant>,
}

impl Datagrams {
    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    pub(super) fn new(kept: &Kept) -> Self {
        Self {
            buffer_max: kept.datagram_send_buffer,
            is_enabled: kept.datagram_receive_buffer.is_some(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            refused_len: None,
            is_unblocked: false,
            expired_count: 0,
            dropped_count: 0,
            unread_count: 0,
            taken_count: 0,
            received: Received {
                copies: VecDeque::new(),
                copied_bytes: 0,
                buffer_max: kept.datagram_receive_buffer.unwrap_or(0),
                packet_count: 0,
                left_engine_count: 0,
            },
        }
    }

    fn pop(&mut self) -> Option<Waiting> {
        let first = self.queue.pop_front()?;
        self.queued_bytes -= first.bytes.len() + EACH_BYTES;
        Some(first)
    }

    fn push(&mut self, waiting: Waiting) {
        self.queued_bytes += waiting.bytes.len() + EACH_BYTES;
        self.queue.push_back(waiting);
    }

    /// Whether to report that there is room; resets the flag.
    pub(super) fn take_unblocked(&mut self) -> bool {
        std::mem::take(&mut self.is_unblocked)
    }

    pub(super) fn is_unblocked(&self) -> bool {
        self.is_unblocked
    }

    /// Bytes that may be queued now.
    pub(super) fn room(&self, proto: &mut proto::Connection) -> usize {
        let space = proto.datagrams().send_buffer_space();
        space.saturating_sub(self.queued_bytes)
    }

    /// Whether a datagram of this length fits. Differs from comparing with [`Datagrams::room`],
    /// which is also 0 if not even an empty one fits.
    fn has_room(&self, proto: &mut proto::Connection, len: usize) -> bool {
        // The engine's space already subtracts the overhead of one more datagram.
        let space = proto.datagrams().send_buffer_space();
        self.queued_bytes + len <= space
    }

    /// Queues a datagram, or returns why not. `reserved_len` bytes of each packet may be needed
    /// otherwise.
    pub(super) fn send(
        &mut self,
        proto: &mut proto::Connection,
        bytes: Bytes,
        drops_oldest: bool,
        deadline: Option<Instant>,
        reserved_len: usize,
    ) -> Result<(), DatagramRefusal> {
        if !self.is_enabled {
            return Err(DatagramRefusal::Error(DatagramError::Disabled));
        }
        let Some(len_max) = proto.datagrams().max_size() else {
            return Err(DatagramRefusal::Error(DatagramError::UnsupportedByPeer));
        };
        let buffer_max = self.buffer_max.saturating_sub(EACH_BYTES);
        let len_max = len_max.saturating_sub(reserved_len);
        let (len, len_max) = (bytes.len(), len_max.min(buffer_max));
        if len > len_max {
            let error = DatagramError::TooLong { len, len_max };
            return Err(DatagramRefusal::Error(error));
        }
        while drops_oldest && !self.has_room(proto, bytes.len()) && self.pop().is_some() {
            self.dropped_count += 1;
        }
        if !self.has_room(proto, bytes.len()) {
            let len_min = self.refused_len.unwrap_or(usize::MAX);
            self.refused_len = Some(len_min.min(bytes.len()));
            return Err(DatagramRefusal::Blocked(bytes));
        }
        self.push(Waiting { bytes, deadline });
        Ok(())
    }

    fn give(proto: &mut proto::Connection, bytes: Bytes) -> Result<(), DatagramRefusal> {
        use proto::SendDatagramError as Engine;
        let (len, len_max) = (bytes.len(), proto.datagrams().max_size());
        let result = proto.datagrams().send(bytes, false);
        result.map_err(|error| match error {
            Engine::Blocked(bytes) => DatagramRefusal::Blocked(bytes),
            Engine::UnsupportedByPeer => DatagramRefusal::Error(DatagramError::UnsupportedByPeer),
            Engine::Disabled => DatagramRefusal::Error(DatagramError::Disabled),
            Engine::TooLarge => DatagramRefusal::Error(DatagramError::TooLong {
                len,
                len_max: len_max.unwrap_or_default(),
            }),
        })
    }

    /// Passes the engine what the next message can carry, and drops expired datagrams.
    pub(super) fn feed(&mut self, proto: &mut proto::Connection, now: Instant) {
        if self.queue.is_empty() && self.refused_len.is_none() {
            return;
        }
        let space_max = self.buffer_max.saturating_sub(EACH_BYTES);
        while let Some(first) = self.queue.front() {
            let (len, deadline) = (first.bytes.len(), first.deadline);
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.pop();
                self.expired_count += 1;
                continue;
            }
            let ahead_max = match deadline {
                Some(_) => EXPIRING_AHEAD_BYTES,
                None => MESSAGE_BYTES_MAX,
            };
            let ahead = space_max.saturating_sub(proto.datagrams().send_buffer_space());
            if ahead > 0 && ahead + len > ahead_max {
                break;
            }
            let Some(first) = self.pop() else {
                break;
            };
            match Self::give(proto, first.bytes) {
                Ok(()) => {}
                Err(DatagramRefusal::Blocked(bytes)) => {
                    self.queued_bytes += bytes.len() + EACH_BYTES;
                    self.queue.push_front(Waiting { bytes, deadline });
                    break;
                }
                // The path carries less than when it was queued.
                Err(DatagramRefusal::Error(_)) => self.dropped_count += 1,
            }
        }
        if let Some(refused_len) = self.refused_len
            && self.has_room(proto, refused_len)
        {
            self.refused_len = None;
            self.is_unblocked = true;
        }
    }

    /// Takes a received datagram.
    pub(super) fn receive(&mut self, proto: &mut proto::Connection) -> Option<Bytes> {
        let received = &mut self.received;
        let taken = received.pop_copy().or_else(|| received.take_from(proto));
        if taken.is_some() {
            self.taken_count += 1;
        } else {
            // The queues are empty: received datagrams that were not taken were dropped to make room.
            let come_count = proto.stats().frame_rx.datagram;
            self.unread_count = come_count - self.taken_count;
        }
        taken
    }

    /// A packet was received, perhaps with datagrams.
    pub(super) fn note_packet(&mut self, proto: &mut proto::Connection) {
        self.received.packet_count += 1;
        if self.is_enabled && self.received.packet_count >= DATAGRAMS_UNCOPIED_PACKETS {
            self.received.copy_many(proto);
        }
    }
}

impl Received {
    fn pop_copy(&mut self) -> Option<Bytes> {
        let first = self.copies.pop_front()?;
        self.copied_bytes -= first.len() + EACH_BYTES;
        Some(first)
    }

    fn take_from(&mut self, proto: &mut proto::Connection) -> Option<Bytes> {
        let taken = proto.datagrams().recv();
        self.left_engine_count += u64::from(taken.is_some());
        taken
    }

    /// Copies what the engine has if that is much, and drops the oldest beyond the buffer.
    fn copy_many(&mut self, proto: &mut proto::Connection) {
        self.packet_count = 0;
        let come_count = proto.stats().frame_rx.datagram;
        if come_count - self.left_engine_count <= DATAGRAMS_UNCOPIED_MAX {
            return;
        }
        while let Some(bytes) = self.take_from(proto) {
            self.copied_bytes += bytes.len() + EACH_BYTES;
            self.copies.push_back(Bytes::copy_from_slice(&bytes));
        }
        self.left_engine_count = come_count;
        while self.copied_bytes > self.buffer_max {
            self.pop_copy();
        }
    }
}
