//! Flow control of a session (draft-ietf-webtrans-http3-16 §5): cumulative counts of streams and of their bytes.
//!
//! Owns: one [`Flow`] per session. Called by: `session`, which sends its limits in capsules. It applies in addition to
//! QUIC's own flow control.

use super::codes;
use super::config::{Direction, Limits};

/// Maximum number of streams that a limit may allow (§5.6.2): stream ids end there.
const STREAMS_MAX: u64 = 1 << 60;

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    Data,
    Streams(Direction),
}

impl Resource {
    const ALL: [Self; 3] = [
        Self::Data,
        Self::Streams(Direction::Bidirectional),
        Self::Streams(Direction::Unidirectional),
    ];

    fn limit(self, limits: &Limits) -> u64 {
        match self {
            Self::Data => limits.data,
            Self::Streams(direction) => limits.streams(direction),
        }
    }
}

/// A violation by the peer: the code that ends the session.
pub(super) const VIOLATION: u64 = codes::FLOW_CONTROL_ERROR;

/// The peer's limit for us.
#[derive(Debug)]
struct Credit {
    limit: u64,
    used: u64,
    /// The limit at which we were last blocked; reported to the peer once.
    blocked_at: Option<u64>,
}

/// Our limit for the peer.
#[derive(Debug)]
struct Window {
    /// As announced to the peer.
    limit: u64,
    /// Size of the window: the limit minus the released amount.
    size: u64,
    used: u64,
    released: u64,
}

/// The counts of one session, in both directions.
#[derive(Debug)]
pub(super) struct Flow {
    credits: [Credit; 3],
    windows: [Window; 3],
}

impl Flow {
    /// `ours` is what we allow the peer, `peers` what it allows us.
    pub(super) fn new(ours: &Limits, peers: &Limits) -> Self {
        Self {
            credits: Resource::ALL.map(|resource| Credit {
                limit: resource.limit(peers),
                used: 0,
                blocked_at: None,
            }),
            windows: Resource::ALL.map(|resource| Window {
                limit: resource.limit(ours),
                size: resource.limit(ours),
                used: 0,
                released: 0,
            }),
        }
    }

    /// Returns how much of `wanted` we may use, and counts it as used.
    pub(super) fn take(&mut self, resource: Resource, wanted: u64) -> u64 {
        let credit = &mut self.credits[index(resource)];
        let taken = wanted.min(credit.limit - credit.used);
        credit.used += taken;
        taken
    }

    /// Returns an unused amount that [`Flow::take`] had granted.
    pub(super) fn give_back(&mut self, resource: Resource, count: u64) {
        let credit = &mut self.credits[index(resource)];
        credit.used = credit.used.saturating_sub(count);
    }

    /// How much we may use.
    pub(super) fn available(&self, resource: Resource) -> u64 {
        let credit = &self.credits[index(resource)];
        credit.limit - credit.used
    }

    /// We are blocked: the limit to report to the peer, once for each limit.
    pub(super) fn block(&mut self, resource: Resource) -> Option<u64> {
        let credit = &mut self.credits[index(resource)];
        let is_new = credit.blocked_at != Some(credit.limit);
        credit.blocked_at = Some(credit.limit);
        is_new.then_some(credit.limit)
    }

    /// The peer raises a limit; true if we were blocked.
    ///
    /// # Errors
    /// [`VIOLATION`]: it does not rise, or exceeds the maximum.
    pub(super) fn raise(&mut self, resource: Resource, limit: u64) -> Result<bool, u64> {
        let credit = &mut self.credits[index(resource)];
        let is_possible = resource == Resource::Data || limit <= STREAMS_MAX;
        if limit <= credit.limit || !is_possible {
            return Err(VIOLATION);
        }
        credit.limit = limit;
        Ok(credit.blocked_at.take().is_some())
    }

    /// The peer reports the limit at which it is blocked; this end raises limits without such reports.
    ///
    /// # Errors
    /// [`VIOLATION`]: an impossible count.
    pub(super) fn peer_is_blocked(resource: Resource, limit: u64) -> Result<(), u64> {
        if resource != Resource::Data && limit > STREAMS_MAX {
            return Err(VIOLATION);
        }
        Ok(())
    }

    /// The peer uses `count` more.
    ///
    /// # Errors
    /// [`VIOLATION`]: more than the limit.
    pub(super) fn receive(&mut self, resource: Resource, count: u64) -> Result<(), u64> {
        let window = &mut self.windows[index(resource)];
        window.used = window.used.saturating_add(count);
        if window.used > window.limit {
            return Err(VIOLATION);
        }
        Ok(())
    }

    /// Releases `count` of the peer's used amount: returns the new limit to announce, once half of the window is free.
    pub(super) fn release(&mut self, resource: Resource, count: u64) -> Option<u64> {
        let window = &mut self.windows[index(resource)];
        window.released = window.released.saturating_add(count).min(window.used);
        let limit = window.released.saturating_add(window.size);
        let step = (window.size / 2).max(1);
        if limit < window.limit.saturating_add(step) {
            return None;
        }
        window.limit = limit;
        Some(limit)
    }
}

fn index(resource: Resource) -> usize {
    match resource {
        Resource::Data => 0,
        Resource::Streams(Direction::Bidirectional) => 1,
        Resource::Streams(Direction::Unidirectional) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS: Resource = Resource::Streams(Direction::Unidirectional);
    const LIMITS: Limits =
        Limits { data: 100, bidirectional_streams: 0, unidirectional_streams: 2 };

    #[test]
    fn credit_is_used_up_and_raised() {
        let mut flow = Flow::new(&Limits::default(), &LIMITS);
        assert_eq!(flow.take(Resource::Data, 70), 70);
        assert_eq!(flow.take(Resource::Data, 70), 30);
        assert_eq!(flow.take(Resource::Data, 70), 0);
        assert_eq!(flow.block(Resource::Data), Some(100));
        assert_eq!(flow.block(Resource::Data), None, "the peer was notified");
        assert_eq!(flow.raise(Resource::Data, 150), Ok(true));
        assert_eq!(flow.raise(Resource::Data, 160), Ok(false));
        assert_eq!(flow.available(Resource::Data), 60);
        assert_eq!(flow.block(Resource::Data), Some(160));
        assert_eq!(flow.available(STREAMS), 2);
    }

    #[test]
    fn limits_that_do_not_rise_or_cannot_be_are_violations() {
        let mut flow = Flow::new(&LIMITS, &LIMITS);
        assert_eq!(flow.raise(Resource::Data, 100), Err(VIOLATION));
        assert_eq!(flow.raise(STREAMS, 1), Err(VIOLATION));
        assert_eq!(flow.raise(STREAMS, (1 << 60) + 1), Err(VIOLATION));
        assert_eq!(flow.raise(STREAMS, 1 << 60), Ok(false));
        assert_eq!(flow.raise(Resource::Data, (1 << 62) - 1), Ok(false));
        assert_eq!(Flow::peer_is_blocked(STREAMS, (1 << 60) + 1), Err(VIOLATION));
        assert_eq!(Flow::peer_is_blocked(Resource::Data, (1 << 62) - 1), Ok(()));
    }

    #[test]
    fn the_window_moves_when_half_of_it_is_free() {
        let mut flow = Flow::new(&LIMITS, &Limits::default());
        assert_eq!(flow.receive(Resource::Data, 100), Ok(()));
        assert_eq!(flow.release(Resource::Data, 49), None);
        assert_eq!(flow.release(Resource::Data, 1), Some(150));
        assert_eq!(flow.receive(Resource::Data, 51), Err(VIOLATION));
        assert_eq!(flow.receive(STREAMS, 1), Ok(()));
        assert_eq!(flow.release(STREAMS, 1), Some(3));
        assert_eq!(flow.receive(Resource::Streams(Direction::Bidirectional), 1), Err(VIOLATION));
    }

    #[test]
    fn no_more_is_released_than_was_used() {
        let mut flow = Flow::new(&LIMITS, &Limits::default());
        assert_eq!(flow.release(Resource::Data, 1000), None);
        assert_eq!(flow.receive(Resource::Data, 60), Ok(()));
        assert_eq!(flow.release(Resource::Data, u64::MAX), Some(160));
    }
}
