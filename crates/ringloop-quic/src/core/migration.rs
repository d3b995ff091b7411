//! A client that has moved asks the server for an answer until that has proved the new address.
//!
//! Owns: [`Migration`], when to ask and by how much. Called by: `live`. Never does: send.
//!
//! The engine asks for an acknowledgement once, and again by its probe time-out, which it does not set back when a handshake
//! is confirmed (RFC 9002 §A.11 would): after a handshake with losses that is seconds, and all that the server sends
//! meanwhile goes to the old address. The server may send three times what has come from the new one before it has proved
//! it; its search for the MTU, whose packets are long, counts too. Where its challenge or the response is lost, it is silent
//! then, and after its time for that it goes back to the old address.
//!
//! Each packet of a server that has not proved the address has a `PATH_CHALLENGE` (quinn-proto's): an acknowledgement without
//! one is the end of this. While nothing is heard the client asks by several packets, and takes the path for a new one: its
//! own search for the MTU begins again, and allows the server the most.

use crate::limits::{MOVE_ASKS, MOVE_PINGS, MOVE_WAIT_MAX, MOVE_WAIT_MIN};
use std::time::{Duration, Instant};

/// What has come of the server: counts of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heard {
    pub acks: u64,
    pub challenges: u64,
}

pub(super) struct Migration {
    /// What had come when the server was asked last.
    heard: Heard,
    /// When to ask again; `None` before the first packet has left.
    due: Option<Instant>,
    wait: Duration,
    asked: u32,
    /// Packets of this asking that have not left.
    left: u32,
}

impl Migration {
    pub(super) fn new(heard: Heard, rtt: Duration) -> Self {
        Self {
            heard,
            due: None,
            wait: (3 * rtt).clamp(MOVE_WAIT_MIN, MOVE_WAIT_MAX),
            asked: 0,
            left: 0,
        }
    }

    /// What there is to send has been sent: the first time, the wait begins.
    pub(super) fn sent(&mut self, now: Instant) {
        self.due.get_or_insert(now + self.wait);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Whether it is to be asked by one packet more now.
    pub(super) fn asks(&mut self) -> bool {
        let asks = self.left > 0;
        self.left = self.left.saturating_sub(1);
        asks
    }

    /// Note what has come by now; whether there is nothing more to ask: the server has answered, and asks for no proof, or
    /// was asked often enough.
    pub(super) fn is_over(&mut self, now: Instant, heard: Heard) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        let is_proved = heard.acks > self.heard.acks && heard.challenges == self.heard.challenges;
        if is_proved || self.asked == MOVE_ASKS {
            return true;
        }
        if is_due {
            self.asked += 1;
            self.wait = (2 * self.wait).min(MOVE_WAIT_MAX);
            self.due = Some(now + self.wait);
            self.left = if heard == self.heard { MOVE_PINGS } else { 1 };
            self.heard = heard;
        }
        false
    }

    /// Whether it is being asked now, and nothing has come since the last time.
    pub(super) fn is_silent(&self) -> bool {
        self.left == MOVE_PINGS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARD: Heard = Heard {
        acks: 7,
        challenges: 1,
    };

    fn packets(migration: &mut Migration) -> u32 {
        let mut count = 0;
        while migration.asks() {
            count += 1;
        }
        count
    }

    #[test]
    fn asks_later_and_later_until_it_is_enough() {
        let mut now = Instant::now();
        let mut migration = Migration::new(HEARD, Duration::from_millis(20));
        assert!(!migration.is_over(now, HEARD));
        migration.sent(now);
        let mut waits = Vec::new();
        while let Some(due) = migration.deadline() {
            waits.push(due - now);
            now = due;
            if migration.is_over(now, HEARD) {
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
    fn server_that_still_challenges_is_asked_by_one_packet() {
        let mut now = Instant::now();
        let mut migration = Migration::new(HEARD, Duration::ZERO);
        migration.sent(now);
        let challenged = Heard {
            acks: 8,
            challenges: 2,
        };
        assert!(!migration.is_over(now, challenged), "it is not due");
        assert_eq!(packets(&mut migration), 0);
        now = migration.deadline().unwrap();
        assert!(!migration.is_over(now, challenged));
        assert!(!migration.is_silent());
        assert_eq!(packets(&mut migration), 1);
        let proved = Heard {
            acks: 9,
            challenges: 2,
        };
        assert!(migration.is_over(now, proved));
    }
}
