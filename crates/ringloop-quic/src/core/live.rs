//! The core's own state of each connection, and the queues of connections to look
//! at.

use super::amplification::AmplificationLimit;
use super::datagrams::Datagrams;
use super::event::{self, Event};
use super::handle::Handle;
use super::ids::Ids;
use super::migration::{FramesReceived, Migration};
use super::resets::Resets;
use super::staged::Staged;
use super::tuning::Tuning;
use crate::StreamId;
use crate::config::Kept;
use crate::error::ConnectionError;
use crate::limits::IDS_UNSENT_MAX;
use crate::message::Transmit;
use crate::proto;
use crate::proto::concluded::Agreed;
use crate::proto::congestion::poll_transmit;
use crate::proto::final_sizes::FinalSize;
use crate::proto::unprotected::FirstPackets;
use crate::proto::varint;
use crate::qlog::Log;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// RFC 9000 §20.1.
const PROTOCOL_VIOLATION: u64 = 0xa;

/// A connection with the core's state for it.
pub(super) struct Live {
    pub(super) proto: proto::Connection,
    pub(super) key: proto::ConnectionHandle,
    /// In the queue of connections that may have something to send.
    pub(super) is_active: bool,
    /// In the queue of connections that may have events.
    pub(super) is_eventful: bool,
    /// Its deadline in the heap.
    pub(super) armed: Option<Instant>,
    pub(super) end: End,
    /// Close it with this once pending data is sent.
    pub(super) closing: Option<(u64, Bytes)>,
    pub(super) staged: Staged,
    /// Set if the application asked for events about connection ids.
    pub(super) ids: Option<Box<Ids>>,
    pub(super) log: Option<Arc<Log>>,
    pub(super) tuning: Tuning,
    pub(super) datagrams: Datagrams,
    pub(super) confirmation: Confirmation,
    pub(super) first_packet: FirstPacket,
    /// Clients, until the handshake is complete.
    pub(super) first_sent: Option<Box<FirstPackets>>,
    /// Deadline of the handshake.
    pub(super) handshake_deadline: Option<Instant>,
    pub(super) loss: Loss,
    pub(super) idle: Idle,
    /// The engine panicked in it, and is not called for it any more ([`super::contain`]).
    pub(super) is_broken: bool,
    /// Final sizes of the peer's streams that were not reported, if the application wants them.
    pub(super) final_sizes: Option<VecDeque<FinalSize>>,
    /// Clients that migrated, until the server answers.
    pub(super) migration: Option<Box<Migration>>,
    /// Servers, until the client's address is validated.
    pub(super) amplification: Option<Box<AmplificationLimit>>,
    /// Set if the connection announced `RESET_STREAM_AT`.
    pub(super) resets: Option<Box<Resets>>,
    /// How often the engine issued ids: for the handshake, and for each one that the peer retired.
    pub(super) issues: u64,
}

/// Handshake state reported to the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirmation {
    /// In progress.
    Incomplete,
    /// Complete but not confirmed.
    Pending,
    Reported,
}

/// Whether the peer has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstPacket {
    /// A client that has received nothing: an ICMP error may end it.
    Awaited,
    /// Something was received, or it is closed, or belongs to a server.
    Received,
}

/// Whether the application knows why the connection was lost, if it did not close it itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loss {
    None,
    /// Dropped here; to be reported.
    Unreported(Box<ConnectionError>),
    Reported,
}

/// How long the connection has been idle, and may be.
#[derive(Debug)]
pub(super) struct Idle {
    own_timeout: Option<Duration>,
    /// When a datagram of the peer last arrived.
    heard: Instant,
}

impl Idle {
    pub(super) fn new(kept: &Kept, now: Instant) -> Self {
        Self { own_timeout: kept.idle_timeout, heard: now }
    }

    pub(super) fn note_heard(&mut self, now: Instant) {
        self.heard = now;
    }

    pub(super) fn passed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }
}

impl Live {
    /// The smaller of both ends' limits; `None` without any, and before the handshake is complete.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        if self.proto.is_handshaking() {
            return None;
        }
        let agreed = self.proto.crypto_session().handshake_data()?.downcast::<Agreed>().ok()?;
        self.idle.own_timeout.into_iter().chain(agreed.idle_timeout).min()
    }

    /// Whether the handshake is confirmed (RFC 9001 §4.1.2); a client may not migrate before that
    /// (RFC 9000 §9).
    pub(super) fn is_confirmed(&self) -> bool {
        let is_confirmed_by_peer = self.proto.stats().frame_rx.handshake_done > 0;
        !self.proto.is_handshaking()
            && (is_confirmed_by_peer || self.proto.side() == proto::Side::Server)
    }

    /// The next event for the application.
    pub(super) fn next_event(&mut self, handle: Handle) -> Option<Event> {
        while !self.is_broken
            && let Some(event) = self.proto.poll()
        {
            let event = event::from_engine(handle, event);
            if let Event::Finished(_, stream) | Event::Stopped(_, stream, _) = &event
                && let Some(resets) = &mut self.resets
            {
                resets.forget_head(*stream);
            }
            if matches!(event, Event::Connected(_)) {
                self.confirmation = Confirmation::Pending;
                self.first_sent = None;
            }
            let Event::Lost(_, error) = &event else {
                return Some(event);
            };
            // Otherwise it is the peer's reply to our close.
            if self.loss == Loss::None {
                self.loss = Loss::Reported;
                self.log_loss(error);
                return Some(event);
            }
        }
        if let Some((stream, size)) = self.final_sizes.as_mut().and_then(VecDeque::pop_front) {
            return Some(Event::FinalSize(handle, StreamId(stream), size));
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

    /// The earliest deadline.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        let own = self.handshake_deadline.filter(|_| self.proto.is_handshaking());
        let migration = self.migration.as_ref().and_then(|migration| migration.deadline());
        let engine = self.proto.poll_timeout();
        own.into_iter().chain(migration).chain(engine).min()
    }

    /// Packets leave from another local address from now on.
    pub(super) fn moves(&mut self) {
        self.proto.local_address_changed();
        if self.proto.side() == proto::Side::Client {
            let migration = Migration::new(self.frames_received(), self.proto.rtt());
            self.migration = Some(Box::new(migration));
        }
    }

    fn frames_received(&self) -> FramesReceived {
        let frames = self.proto.stats().frame_rx;
        FramesReceived { acks: frames.acks, challenges: frames.path_challenge }
    }

    /// Repeats the migration probe if due.
    pub(super) fn repeat_migration(&mut self, now: Instant) {
        let received = self.frames_received();
        let Some(migration) = &mut self.migration else {
            return;
        };
        if self.proto.is_closed() || migration.is_over(now, received) {
            self.migration = None;
        } else if migration.is_silent() {
            // The estimates of the old path do not apply: neither its congestion window, which data
            // in flight there would fill, nor its RTT (RFC 9000 §9.4).
            self.proto.path_changed(now);
        }
    }

    /// A packet was received, or the connection is closed; whether it was unanswered before.
    pub(super) fn note_answered(&mut self) -> bool {
        std::mem::replace(&mut self.first_packet, FirstPacket::Received) == FirstPacket::Awaited
    }

    /// Whether to process a Retry or Version Negotiation packet; a server never does.
    pub(super) fn heeds(&self, packet: &[u8]) -> bool {
        let sent = self.first_sent.as_ref();
        sent.is_some_and(|sent| sent.are_answered_by(packet, &self.proto))
    }

    /// Whether the peer has retired ids that were never sent to it. The engine replaces each at once, and keeps all
    /// that it cannot send yet.
    pub(super) fn retires_unsent_ids(&self) -> bool {
        let sent = self.proto.stats().frame_tx.new_connection_id;
        self.issues > sent + IDS_UNSENT_MAX
    }

    /// Whether the handshake has timed out.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.proto.is_handshaking() && self.handshake_deadline.is_some_and(|end| end <= now)
    }

    /// The next message, minus what the amplification limit still blocks.
    pub(super) fn next_message(
        &mut self,
        now: Instant,
        segments_max: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let Some(amplification) = &mut self.amplification else {
            let mut transmit = poll_transmit(&mut self.proto, now, segments_max, buf);
            if transmit.is_none()
                && self.migration.as_mut().is_some_and(|migration| migration.asks())
            {
                self.proto.ping();
                transmit = poll_transmit(&mut self.proto, now, segments_max, buf);
            }
            return Some((&transmit?).into());
        };
        if amplification.is_over {
            let held = self.amplification.take().and_then(|amplification| amplification.end(buf));
            return held.or_else(|| self.next_message(now, segments_max, buf));
        }
        let received_len = self.proto.stats().udp_rx.bytes;
        if amplification.is_full() {
            return amplification.release(received_len, buf);
        }
        let transmit = poll_transmit(&mut self.proto, now, segments_max, buf)?;
        amplification.pass(received_len, (&transmit).into(), buf)
    }

    /// Passes staged bytes to the engine; whether all of `stream`'s are passed.
    pub(super) fn flush(&mut self, stream: Option<proto::StreamId>) -> bool {
        self.staged.flush(&mut self.proto, stream)
    }

    /// Looks at what the engine did with a datagram.
    pub(super) fn settle_resets(&mut self) {
        if let Some(resets) = &mut self.resets {
            resets.settle(&mut self.proto);
        }
    }

    /// Sets the log's time.
    pub(super) fn log_now(&self, now: Instant) {
        if let Some(log) = &self.log {
            log.set_now(now);
        }
    }

    /// Closes it, after what may be sent now or at once. In either case a client's last handshake
    /// flight goes first, since closing would discard it and the server would see neither the
    /// connection nor the code (RFC 9000 §10.2.3).
    pub(super) fn close(&mut self, now: Instant, code: u64, reason: Bytes, is_behind: bool) {
        // What happens from here on is the application's doing.
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

    /// Ends it because of a violation that the engine does not look for. The engine closes with codes of
    /// applications only: the peer reads 0 and the reason.
    pub(super) fn fail(&mut self, now: Instant, reason: &'static str) {
        if self.loss == Loss::None {
            let reason = reason.to_owned();
            let error = ConnectionError::Transport { code: PROTOCOL_VIOLATION, reason };
            self.loss = Loss::Unreported(Box::new(error));
        }
        self.closing = None;
        self.proto.close(now, varint(0), Bytes::from_static(reason.as_bytes()));
    }

    /// Nothing else is left to send: closes it if that is pending; whether it did.
    pub(super) fn close_now(&mut self, now: Instant) -> bool {
        let closing = self.closing.take();
        if let Some((code, reason)) = closing {
            self.proto.close(now, varint(code), reason);
            return true;
        }
        false
    }
}

/// Progress of a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    NotYet,
    /// The engine forgot it; not yet reported.
    Drained,
    Reported,
}

/// The connections to look at.
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
