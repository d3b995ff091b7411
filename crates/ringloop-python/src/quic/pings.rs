//! Pings and their acknowledgements.

use std::time::Instant;

use ringloop_quic::core::Connection;

/// Pings that wait for their acknowledgement. The engine does not report which frames were
/// acknowledged; a ping counts as acknowledged when an ACK arrives that may be its own: at least
/// the minimum round trip after it was sent. After an earlier ACK another ping is sent, so that one
/// will come.
#[derive(Debug, Default)]
pub struct Pings {
    waiting: Vec<Ping>,
    asked_count: u64,
    pub answered_count: u64,
}

#[derive(Debug)]
struct Ping {
    uid: u64,
    /// PING frames sent before it was requested.
    frames_before: u64,
    sent: Option<Sent>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Instant,
    /// ACK frames received at the last check.
    acks_seen: u64,
}

impl Pings {
    /// Sends a ping; returns its number in the connection, from 1.
    pub fn ask(&mut self, connection: &mut Connection<'_>, uid: u64) -> u64 {
        let frames_before = connection.stats().pings_sent;
        connection.ping();
        self.waiting.push(Ping { uid, frames_before, sent: None });
        self.asked_count += 1;
        self.asked_count
    }

    /// Records which were sent.
    pub fn note_sent(&mut self, connection: &Connection<'_>, now: Instant) {
        let stats = connection.stats();
        for ping in &mut self.waiting {
            if ping.sent.is_none() && stats.pings_sent > ping.frames_before {
                ping.sent = Some(Sent { at: now, acks_seen: stats.acks_received });
            }
        }
    }

    /// Takes the pings that are acknowledged by now.
    pub fn take_answered(&mut self, connection: &mut Connection<'_>, now: Instant) -> Vec<u64> {
        let stats = connection.stats();
        let (mut answered, mut is_early) = (Vec::new(), false);
        self.waiting.retain_mut(|ping| {
            let Some(sent) = &mut ping.sent else {
                return true;
            };
            if stats.acks_received <= sent.acks_seen {
                return true;
            }
            sent.acks_seen = stats.acks_received;
            let is_answered = now - sent.at >= stats.rtt_min * 3 / 4;
            if is_answered {
                answered.push(ping.uid);
            }
            is_early |= !is_answered;
            !is_answered
        });
        if is_early {
            connection.ping();
        }
        self.answered_count += answered.len() as u64;
        answered
    }

    /// Whether some are not acknowledged yet.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
