//! A client that migrated probes the server until the new address is validated.
//!
//! Owns: [`Migration`], when to probe and with how many packets. Called by: `live`, which sends.
//!
//! The engine probes once, and again by its probe timeout, which it does not reset when a handshake
//! is confirmed (RFC 9002 §A.11 would): after a lossy handshake that takes seconds, and until then
//! the server sends everything to the old address. Before validation the server may send three
//! times what it received from the new address; its MTU probes, which are long packets, count too.
//! If its challenge or the response is lost then, it is silent and falls back to the old address
//! when its timer expires.
//!
//! Each packet of a server that has not validated the address carries a `PATH_CHALLENGE`
//! (quinn-proto does so): an acknowledgement without one ends the probing. While nothing arrives
//! the client sends several packets per probe and resets the path, so that its own MTU search
//! starts over, which gives the server the largest allowance.

use crate::limits::{MOVE_ASKS, MOVE_PINGS, MOVE_WAIT_MAX, MOVE_WAIT_MIN};
use std::time::{Duration, Instant};

/// Counts of frames received from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FramesReceived {
    pub acks: u64,
    pub challenges: u64,
}

pub(super) struct Migration {
    /// What had arrived at the last probe.
    received: FramesReceived,
    /// When to probe again; `None` before the first packet was sent.
    due: Option<Instant>,
    wait: Duration,
    asked: u32,
    /// Packets of this probe not yet sent.
    left: u32,
}

impl Migration {
    pub(super) fn new(received: FramesReceived, rtt: Duration) -> Self {
        Self {
            received,
            due: None,
            wait: (3 * rtt).clamp(MOVE_WAIT_MIN, MOVE_WAIT_MAX),
            asked: 0,
            left: 0,
        }
    }

    /// Everything pending was sent: the first time, the timer starts.
    pub(super) fn sent(&mut self, now: Instant) {
        self.due.get_or_insert(now + self.wait);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Whether to send one more probe packet now.
    pub(super) fn asks(&mut self) -> bool {
        let asks = self.left > 0;
        self.left = self.left.saturating_sub(1);
        asks
    }

    /// Records what has arrived; whether probing is over: the server answered without a challenge,
    /// or was probed often enough.
    pub(super) fn is_over(&mut self, now: Instant, received: FramesReceived) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        let is_validated =
            received.acks > self.received.acks && received.challenges == self.received.challenges;
        if is_validated || self.asked == MOVE_ASKS {
            return true;
        }
        if is_due {
            self.asked += 1;
            self.wait = (2 * self.wait).min(MOVE_WAIT_MAX);
            self.due = Some(now + self.wait);
            self.left = if received == self.received { MOVE_PINGS } else { 1 };
            self.received = received;
        }
        false
    }

    /// Whether a probe is pending and nothing arrived since the last one.
    pub(super) fn is_silent(&self) -> bool {
        self.left == MOVE_PINGS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVED: FramesReceived = FramesReceived { acks: 7, challenges: 1 };

    fn packets(migration: &mut Migration) -> u32 {
        let mut count = 0;
        while migration.asks() {
            count += 1;
        }
        count
    }

    #[test]
    fn probes_back_off_and_stop() {
        let mut now = Instant::now();
        let mut migration = Migration::new(RECEIVED, Duration::from_millis(20));
        assert!(!migration.is_over(now, RECEIVED));
        migration.sent(now);
        let mut waits = Vec::new();
        while let Some(due) = migration.deadline() {
            waits.push(due - now);
            now = due;
            if migration.is_over(now, RECEIVED) {
                break;
            }
            assert!(migration.is_silent());
            assert_eq!(packets(&mut migration), MOVE_PINGS);
        }
        assert_eq!(waits.len() as u32, MOVE_ASKS + 1);
        assert_eq!(waits[0], Duration::from_millis(60));
        assert_eq!(waits[1], Duration::from_millis(120));
        assert_eq!(waits.last(), Some(&MOVE_WAIT_MAX));
    }

    #[test]
    fn server_that_still_challenges_gets_single_probes() {
        let mut now = Instant::now();
        let mut migration = Migration::new(RECEIVED, Duration::ZERO);
        migration.sent(now);
        let challenged = FramesReceived { acks: 8, challenges: 2 };
        assert!(!migration.is_over(now, challenged), "it is not due");
        assert_eq!(packets(&mut migration), 0);
        now = migration.deadline().unwrap();
        assert!(!migration.is_over(now, challenged));
        assert!(!migration.is_silent());
        assert_eq!(packets(&mut migration), 1);
        let validated = FramesReceived { acks: 9, challenges: 2 };
        assert!(migration.is_over(now, validated));
    }
}
