//! What a core keeps about each connection beside the engine's part, and which of them have to be looked at.

use super::amplification::AmplificationLimit;
use super::datagrams::Datagrams;
use super::event::{self, Event};
use super::handle::Handle;
use super::ids::Ids;
use super::migration::{Heard, Migration};
use super::staged::Staged;
use super::tuning::Tuning;
use crate::error::ConnectionError;
use crate::message::Transmit;
use crate::proto;
use crate::proto::varint;
use crate::qlog::Log;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

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
    pub(super) confirmation: Confirmation,
    pub(super) hearing: Hearing,
    /// When the handshake has to be complete.
    pub(super) handshake_deadline: Option<Instant>,
    pub(super) loss: Loss,
    /// The engine has panicked over it, and is not asked about it any more ([`super::contain`]).
    pub(super) is_broken: bool,
    /// Clients that have moved, until the server answers.
    pub(super) migration: Option<Box<Migration>>,
    /// Servers, until the client's address is validated.
    pub(super) amplification: Option<Box<AmplificationLimit>>,
}

/// What the program knows of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirmation {
    /// It is under way.
    Incomplete,
    /// It is complete, but not confirmed.
    Pending,
    Reported,
}

/// Whether anything was heard of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hearing {
    /// A client that has received nothing: what its packets are answered on the way may end it.
    Nothing,
    /// It has, is over, or is a server's.
    Heard,
}

/// Whether the program knows why the connection is over, where it has not ended it itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loss {
    None,
    /// It was given up here, and the program is to be told.
    Unreported(Box<ConnectionError>),
    Reported,
}

impl Live {
    /// Whether the handshake is confirmed (RFC 9001 §4.1.2): not before may a client go on from another address
    /// (RFC 9000 §9).
    pub(super) fn is_confirmed(&self) -> bool {
        let is_confirmed_by_peer = self.proto.stats().frame_rx.handshake_done > 0;
        !self.proto.is_handshaking()
            && (is_confirmed_by_peer || self.proto.side() == proto::Side::Server)
    }

    /// The next thing to tell the program.
    pub(super) fn next_event(&mut self, handle: Handle) -> Option<Event> {
        while !self.is_broken
            && let Some(event) = self.proto.poll()
        {
            let event = event::from_engine(handle, event);
            if matches!(event, Event::Connected(_)) {
                self.confirmation = Confirmation::Pending;
            }
            let Event::Lost(_, error) = &event else {
                return Some(event);
            };
            // Else it is the peer's answer to what was said when it was given up here.
            if self.loss == Loss::None {
                self.loss = Loss::Reported;
                self.log_loss(error);
                return Some(event);
            }
        }
        if self.confirmation == Confirmation::Pending && !self.is_broken && self.is_confirmed() {
            self.confirmation = Confirmation::Reported;
            return Some(Event::Confirmed(handle));
        }
        if self.datagrams.take_unblocked() {
            return Some(Event::DatagramsUnblocked(handle));
        }
        if let Loss::Unreported(error) = &self.loss {
            let error = ConnectionError::clone(error);
            self.loss = Loss::Reported;
            self.log_loss(&error);
            return Some(Event::Lost(handle, error));
        }
        None
    }

    fn log_loss(&self, error: &ConnectionError) {
        if let Some(log) = &self.log {
            let is_ours = matches!(
                error,
                ConnectionError::Transport { .. }
                    | ConnectionError::Unreachable { .. }
                    | ConnectionError::HandshakeTimedOut { .. }
            );
            log.closed(is_ours, error.code(), &error.to_string());
        }
    }

    /// When something is due, at the latest.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let own = self
            .handshake_deadline
            .filter(|_| self.proto.is_handshaking());
        let migration = self
            .migration
            .as_ref()
            .and_then(|migration| migration.deadline());
        let engine = self.proto.poll_timeout();
        own.into_iter().chain(migration).chain(engine).min()
    }

    /// Packets leave from another address from now on.
    pub(super) fn moves(&mut self) {
        self.proto.local_address_changed();
        if self.proto.side() == proto::Side::Client {
            let migration = Migration::new(self.heard_of_server(), self.proto.rtt());
            self.migration = Some(Box::new(migration));
        }
    }

    fn heard_of_server(&self) -> Heard {
        let frames = self.proto.stats().frame_rx;
        Heard {
            acks: frames.acks,
            challenges: frames.path_challenge,
        }
    }

    /// Say again that it has moved, where that is due.
    pub(super) fn repeat_migration(&mut self, now: Instant) {
        let heard = self.heard_of_server();
        let Some(migration) = &mut self.migration else {
            return;
        };
        if self.proto.is_closed() || migration.is_over(now, heard) {
            self.migration = None;
        } else if migration.is_silent() {
            // What is known of the last path does not hold: not how much it carries (what is on its way there leaves no room
            // for more), nor how long that takes (RFC 9000 §9.4).
            self.proto.path_changed(now);
        }
    }

    /// It is heard, or over; tells whether it was not heard before.
    pub(super) fn hear(&mut self) -> bool {
        std::mem::replace(&mut self.hearing, Hearing::Heard) == Hearing::Nothing
    }

    /// Whether the handshake's time is over.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.proto.is_handshaking() && self.handshake_deadline.is_some_and(|end| end <= now)
    }

    /// The next message, less what may not be sent yet to an address that is not validated.
    pub(super) fn next_message(
        &mut self,
        now: Instant,
        segments_max: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let Some(amplification) = &mut self.amplification else {
            let mut transmit = self.proto.poll_transmit(now, segments_max, buf);
            if transmit.is_none()
                && self
                    .migration
                    .as_mut()
                    .is_some_and(|migration| migration.asks())
            {
                self.proto.ping();
                transmit = self.proto.poll_transmit(now, segments_max, buf);
            }
            return Some((&transmit?).into());
        };
        if amplification.is_over {
            let held = self
                .amplification
                .take()
                .and_then(|amplification| amplification.end(buf));
            return held.or_else(|| self.next_message(now, segments_max, buf));
        }
        let received_len = self.proto.stats().udp_rx.bytes;
        if amplification.is_full() {
            return amplification.release(received_len, buf);
        }
        let transmit = self.proto.poll_transmit(now, segments_max, buf)?;
        amplification.pass(received_len, (&transmit).into(), buf)
    }

    /// Give the engine what was gathered; whether all of `stream`'s is given.
    pub(super) fn flush(&mut self, stream: Option<proto::StreamId>) -> bool {
        self.staged.flush(&mut self.proto, stream)
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
        // What becomes of it now is the program's doing.
        self.confirmation = Confirmation::Reported;
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
    Reported,
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
