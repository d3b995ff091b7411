//! Pings, and what counts as their acknowledgement.

use std::time::Instant;

use ringloop_quic::core::Handle;
use ringloop_quic::error::StreamError;
use ringloop_quic::session::{Wait, Wake};

use super::event_queue::Pending;
use super::state::{State, Style};

/// Pings that wait for their acknowledgement. The protocol does not say which frames were acknowledged; a ping
/// counts as such when an acknowledgement came that may be its own: at least as late as the shortest round trip is
/// long. After one that came earlier the peer is asked again, so that one will come.
#[derive(Debug, Default)]
pub struct Pings {
    pub waiting: Vec<Ping>,
    pub asked_count: u64,
    pub answered_count: u64,
}

#[derive(Debug)]
pub struct Ping {
    pub uid: u64,
    /// PING frames sent when it was asked for.
    pub frames_before: u64,
    pub sent: Option<Sent>,
}

#[derive(Debug, Clone, Copy)]
pub struct Sent {
    at: Instant,
    /// Acknowledgements that had come when it was looked at last.
    acks_seen: u64,
}

impl State {
    /// Have the peer acknowledge something; tells the number of the connection's ping, from 1.
    pub fn ping(&mut self, handle: Handle, uid: u64) -> Result<u64, StreamError> {
        let (mut connection, session) = self.sessions.open(handle)?;
        let frames_before = connection.stats().pings_sent;
        connection.ping();
        session.attached.pings.waiting.push(Ping {
            uid,
            frames_before,
            sent: None,
        });
        session.attached.pings.asked_count += 1;
        let number = session.attached.pings.asked_count;
        if !self.pinging.contains(&handle) {
            self.pinging.push(handle);
        }
        Ok(number)
    }

    /// Note which have left. To be called with the moment of each transmission, and before anything is received:
    /// an acknowledgement that is counted already would be missed.
    pub fn note_sent_pings(&mut self, now: Instant) {
        for at in 0..self.pinging.len() {
            let Some((connection, session)) = self.sessions.both(self.pinging[at]) else {
                continue;
            };
            let stats = connection.stats();
            for ping in &mut session.attached.pings.waiting {
                if ping.sent.is_none() && stats.pings_sent > ping.frames_before {
                    ping.sent = Some(Sent {
                        at: now,
                        acks_seen: stats.acks_received,
                    });
                }
            }
        }
    }

    /// Note those that are answered by now, and tell.
    pub fn answer_pings(&mut self, now: Instant, woken: &mut Vec<Wake>) {
        let mut pinging = std::mem::take(&mut self.pinging);
        pinging.retain(|&handle| {
            let answered = self.answered_pings(now, handle);
            for uid in &answered {
                match self.style {
                    Style::Futures => woken.push(Wake::For(handle, Wait::Progress)),
                    Style::Events => self.push_event(handle, Pending::PingAcknowledged(*uid)),
                }
            }
            self.sessions
                .get(handle)
                .is_some_and(|session| !session.attached.pings.waiting.is_empty())
        });
        self.pinging = pinging;
    }

    fn answered_pings(&mut self, now: Instant, handle: Handle) -> Vec<u64> {
        let Some((mut connection, session)) = self.sessions.both(handle) else {
            return Vec::new();
        };
        let stats = connection.stats();
        let (mut answered, mut is_early) = (Vec::new(), false);
        session.attached.pings.waiting.retain_mut(|ping| {
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
        session.attached.pings.answered_count += answered.len() as u64;
        answered
    }
}
