//! A client that has moved says so until the server has acknowledged something at the new address.
//!
//! The engine asks for an acknowledgement once, and again by its probe time-out, which it does not set back when a handshake
//! is confirmed (RFC 9002 §A.11 would): after a handshake with losses that is seconds, and all that the server sends
//! meanwhile goes to the old address, until the connection has idled for too long. Neither is what it sends to the new one for
//! its own sake (it looks for the MTU) an answer: it may not send others before it has validated the address, and asks for
//! that again as packets of the client's come.

use crate::limits::{MOVE_PINGS, MOVE_WAIT_MAX, MOVE_WAIT_MIN};
use std::time::{Duration, Instant};

pub(super) struct Moved {
    /// ACK frames that had come before.
    acks: u64,
    /// When to ask again; `None` before the first packet has left.
    due: Option<Instant>,
    wait: Duration,
    asked: u32,
}

impl Moved {
    pub(super) fn new(acks: u64, rtt: Duration) -> Self {
        Self {
            acks,
            due: None,
            wait: (3 * rtt).clamp(MOVE_WAIT_MIN, MOVE_WAIT_MAX),
            asked: 0,
        }
    }

    /// What there is to send has been sent: the first time, the wait begins.
    pub(super) fn sent(&mut self, now: Instant) {
        self.due.get_or_insert(now + self.wait);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// What to do now, with so many ACK frames received.
    pub(super) fn next(&mut self, now: Instant, acks: u64) -> Next {
        if acks > self.acks || self.asked == MOVE_PINGS {
            return Next::Forget;
        }
        match self.due {
            Some(due) if due <= now => {
                self.asked += 1;
                self.wait = (2 * self.wait).min(MOVE_WAIT_MAX);
                self.due = Some(now + self.wait);
                Next::Ask
            }
            _ => Next::Wait,
        }
    }
}

/// See [`Moved::next`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// Have the server acknowledge something.
    Ask,
    /// The server has answered, or was asked often enough.
    Forget,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_later_and_later_until_something_comes_or_it_is_enough() {
        let mut now = Instant::now();
        let mut moved = Moved::new(7, Duration::from_millis(20));
        assert_eq!(moved.next(now, 7), Next::Wait);
        moved.sent(now);
        let mut waits = Vec::new();
        while let Some(due) = moved.deadline() {
            waits.push(due - now);
            now = due;
            if moved.next(now, 7) != Next::Ask {
                break;
            }
        }
        assert_eq!(waits.len() as u32, MOVE_PINGS + 1);
        assert_eq!(waits[0], Duration::from_millis(60));
        assert_eq!(waits[1], Duration::from_millis(120));
        assert_eq!(waits.last(), Some(&MOVE_WAIT_MAX));
        assert_eq!(Moved::new(7, Duration::ZERO).next(now, 8), Next::Forget);
    }
}
