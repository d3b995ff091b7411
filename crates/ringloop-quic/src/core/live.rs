//! What a core keeps about each connection beside the engine's part, and which of them have to be looked at.

use super::Transmit;
use super::datagrams::Datagrams;
use super::ids::Ids;
use super::staged::Staged;
use super::tuning::Tuning;
use super::unproved::Unproved;
use crate::error::ConnectionError;
use crate::proto;
use crate::proto::varint;
use crate::qlog::Log;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// A connection's place.
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) state: State,
}

pub(super) enum State {
    Free,
    Live(Box<Live>),
}

/// A connection, and what the core keeps about it.
pub(super) struct Live {
    pub(super) proto: proto::Connection,
    pub(super) key: proto::ConnectionHandle,
    /// It stands in the queue of those that may have something to send.
    pub(super) is_active: bool,
    /// It stands in the queue of those that may have events.
    pub(super) is_eventful: bool,
    /// The deadline that stands in the heap for it.
    pub(super) armed: Option<Instant>,
    pub(super) end: End,
    /// It is to be closed so once what waits has been sent.
    pub(super) closing: Option<(u64, Bytes)>,
    pub(super) staged: Staged,
    /// Where the program wants to hear of connection ids.
    pub(super) ids: Option<Box<Ids>>,
    pub(super) log: Option<Arc<Log>>,
    pub(super) tuning: Tuning,
    pub(super) datagrams: Datagrams,
    /// Bytes that all datagrams which wait to be sent may take.
    pub(super) datagram_buffer: usize,
    pub(super) takes_datagrams: bool,
    pub(super) confirmation: Confirmation,
    pub(super) hearing: Hearing,
    /// Servers, while the client may be anywhere.
    pub(super) unproved: Option<Box<Unproved>>,
}

/// Whether the program knows that the handshake is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirmation {
    Pending,
    Told,
}

/// Whether a client has received anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hearing {
    /// Nothing yet: what its packets are answered on the way may end it.
    Nothing,
    /// They did, and the program is to be told.
    Refused(ConnectionError),
    /// It has, is over, or is a server's.
    Heard,
}

impl Live {
    /// Whether the handshake is confirmed (RFC 9001 §4.1.2): not before may a client go on from another address
    /// (RFC 9000 §9).
    pub(super) fn is_confirmed(&self) -> bool {
        let is_told = self.proto.stats().frame_rx.handshake_done > 0;
        !self.proto.is_handshaking() && (is_told || self.proto.side() == proto::Side::Server)
    }

    /// The next message, less what may not be sent yet to an address that is not proved.
    pub(super) fn next_message(
        &mut self,
        now: Instant,
        segments_max: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let Some(unproved) = &mut self.unproved else {
            return Some((&self.proto.poll_transmit(now, segments_max, buf)?).into());
        };
        if unproved.is_over {
            let held = self.unproved.take().and_then(|unproved| unproved.end(buf));
            return held.or_else(|| self.next_message(now, segments_max, buf));
        }
        let received_len = self.proto.stats().udp_rx.bytes;
        if unproved.is_full() {
            return unproved.release(received_len, buf);
        }
        let transmit = self.proto.poll_transmit(now, segments_max, buf)?;
        unproved.pass(received_len, (&transmit).into(), buf)
    }

    /// Tell the log what time it is.
    pub(super) fn log_now(&self, now: Instant) {
        if let Some(log) = &self.log {
            log.set_now(now);
        }
    }

    /// Close it behind what may be sent now, or at once. Even then the last flight of a client's handshake goes first,
    /// which closing would take back: the server would hear of neither the connection nor the code (RFC 9000 §10.2.3).
    pub(super) fn close(&mut self, now: Instant, code: u64, reason: Bytes, is_behind: bool) {
        let is_owed = self.proto.side() == proto::Side::Client
            && !self.proto.is_handshaking()
            && self.proto.stats().frame_rx.handshake_done == 0;
        if is_behind || is_owed {
            self.closing = Some((code, reason));
        } else {
            self.proto.close(now, varint(code), reason);
        }
    }

    /// Nothing else waits to be sent: close it, if it is to be closed; tells whether it was.
    pub(super) fn close_now(&mut self, now: Instant) -> bool {
        let closing = self.closing.take();
        if let Some((code, reason)) = closing {
            self.proto.close(now, varint(code), reason);
            return true;
        }
        false
    }
}

/// How far a connection is with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    NotYet,
    /// The engine has forgotten it; the program has not heard yet.
    Drained,
    Told,
}

/// The connections that have to be looked at.
#[derive(Default)]
pub(super) struct Queues {
    pub(super) active: VecDeque<u32>,
    pub(super) eventful: VecDeque<u32>,
}

impl Queues {
    /// The connection may have something to send, and events.
    pub(super) fn mark(&mut self, live: &mut Live, slot: u32) {
        if !std::mem::replace(&mut live.is_active, true) {
            self.active.push_back(slot);
        }
        self.mark_eventful(live, slot);
    }

    pub(super) fn mark_eventful(&mut self, live: &mut Live, slot: u32) {
        if !std::mem::replace(&mut live.is_eventful, true) {
            self.eventful.push_back(slot);
        }
    }
}
