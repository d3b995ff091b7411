//! Pings, and what counts as their acknowledgement.

use std::time::Instant;

use ringloop_quic::core::Handle;
use ringloop_quic::error::StreamError;

use super::notes::Note;
use super::state::{State, Style};
use super::waiters::{Wait, Wake};

/// Pings that wait for their acknowledgement. The protocol does not say which frames were acknowledged; a ping
/// counts as such when one came that may be its own: at least as late as the shortest round trip is long.
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
    /// When the frame was seen to be sent, and how many acknowledgements had come.
    pub sent: Option<(Instant, u64)>,
}

impl State {
    /// Have the peer acknowledge something; tells the number of the connection's ping, from 1.
    pub fn ping(&mut self, handle: Handle, uid: u64) -> Result<u64, StreamError> {
        let (mut connection, link) = self.open_both(handle)?;
        let frames_before = connection.stats().pings_sent;
        connection.ping();
        link.pings.waiting.push(Ping {
            uid,
            frames_before,
            sent: None,
        });
        link.pings.asked_count += 1;
        let number = link.pings.asked_count;
        if !self.pinging.contains(&handle) {
            self.pinging.push(handle);
        }
        Ok(number)
    }

    /// Note those that are answered by now, and tell.
    pub fn answer_pings(&mut self, now: Instant, woken: &mut Vec<Wake>) {
        let mut pinging = std::mem::take(&mut self.pinging);
        pinging.retain(|&handle| {
            let answered = self.answered_pings(now, handle);
            for uid in &answered {
                match self.style {
                    Style::Futures => woken.push(Wake::For(handle.to_bits(), Wait::Progress)),
                    Style::Events => self.note(handle, Note::PingAcknowledged(*uid)),
                }
            }
            self.link(handle)
                .is_some_and(|link| !link.pings.waiting.is_empty())
        });
        self.pinging = pinging;
    }

    fn answered_pings(&mut self, now: Instant, handle: Handle) -> Vec<u64> {
        let Some((connection, link)) = self.both(handle) else {
            return Vec::new();
        };
        let stats = connection.stats();
        let mut answered = Vec::new();
        link.pings.waiting.retain_mut(|ping| {
            if ping.sent.is_none() && stats.pings_sent > ping.frames_before {
                ping.sent = Some((now, stats.acks_received));
            }
            let is_answered = ping.sent.is_some_and(|(sent, acks)| {
                stats.acks_received > acks && now - sent >= stats.rtt_min * 3 / 4
            });
            if is_answered {
                answered.push(ping.uid);
            }
            !is_answered
        });
        link.pings.answered_count += answered.len() as u64;
        answered
    }
}
