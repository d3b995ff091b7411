//! Amplification limit: a server sends at most three times what it received from an unvalidated
//! address (RFC 9000 §8.1).
//!
//! Owns: the count, and the queue of blocked datagrams. Called by: `core`, for connections whose
//! client showed no token. The engine starts a datagram while any allowance is left, and may exceed
//! the limit by one; the excess is queued here.

use crate::message::Transmit;

/// Anti-amplification factor (RFC 9000 §8.1).
const FACTOR: u64 = 3;

pub(super) struct AmplificationLimit {
    /// Bytes of the connection's first datagram, which the engine does not count.
    first_len: u64,
    sent_len: u64,
    held: Option<(Transmit, Vec<u8>)>,
    /// The address is validated.
    pub(super) is_over: bool,
}

impl AmplificationLimit {
    pub(super) fn new(first_len: usize) -> Self {
        Self { first_len: first_len as u64, sent_len: 0, held: None, is_over: false }
    }

    /// What may be sent now that `received_len` more bytes arrived.
    pub(super) fn release(&mut self, received_len: u64, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (transmit, bytes) = self.held.take()?;
        *buf = bytes;
        self.pass(received_len, transmit, buf)
    }

    /// Whether anything is queued.
    pub(super) fn is_full(&self) -> bool {
        self.held.is_some()
    }

    /// The whole queue: the address is validated.
    pub(super) fn end(self, buf: &mut Vec<u8>) -> Option<Transmit> {
        let (transmit, bytes) = self.held?;
        *buf = bytes;
        Some(transmit)
    }

    /// Cuts a message in `buf` to the datagrams that may be sent now, and queues the others. `None`
    /// if none may.
    pub(super) fn pass(
        &mut self,
        received_len: u64,
        transmit: Transmit,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let allowed_len = FACTOR * (self.first_len + received_len);
        let left = allowed_len.saturating_sub(self.sent_len);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        if left < buf.len() {
            let segment_len = transmit.segment_len.unwrap_or(buf.len()).max(1);
            let rest = buf.split_off(left / segment_len * segment_len);
            self.held = Some((transmit, rest));
        }
        self.sent_len += buf.len() as u64;
        (!buf.is_empty()).then_some(transmit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(segment_len: usize) -> Transmit {
        Transmit {
            destination: ([192, 0, 2, 1], 4433).into(),
            source: None,
            ecn: 0,
            segment_len: Some(segment_len),
        }
    }

    #[test]
    fn unvalidated_client_gets_at_most_three_times_its_bytes() {
        let mut limit = AmplificationLimit::new(1000);
        let mut buf = vec![1; 3500];
        assert!(limit.pass(0, message(1200), &mut buf).is_some());
        assert_eq!((buf.len(), limit.is_full()), (2400, true));
        assert_eq!(limit.release(0, &mut buf), None);
        assert!(limit.release(100, &mut buf).is_none(), "900 of 1100");
        assert!(limit.release(200, &mut buf).is_some());
        assert_eq!((buf.len(), limit.is_full()), (1100, false));
        let mut buf = vec![2; 400];
        assert!(limit.pass(200, message(400), &mut buf).is_none());
        assert!(limit.end(&mut buf).is_some());
        assert_eq!(buf, [2; 400]);
    }
}
