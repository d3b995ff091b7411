//! How long a loop polls for completions before it sleeps.
//!
//! Owns: the polling time, and how it adapts to each wait. Called by: `Engine::park`, which polls,
//! waits and reads the clock.
//!
//! A sleeping thread is woken by an interrupt, which on a virtual machine may take longer than the
//! request itself. Polling avoids that, but costs CPU time, for nothing if no completion comes soon.
//! So the loop polls for as long as most of its waits take, within the user's limit:
//!
//! ```text
//!   a wait that ended within the limit     ─▸ poll for the whole limit the next time
//!   a wait that took longer                ─▸ half as long; below a sixteenth of the limit, not at all
//! ```
//! Hence an idle loop sleeps: after five long waits in a row it does not poll at all.

use std::time::Duration;

/// Below this fraction of the limit (a sixteenth) the loop does not poll.
const PARTS: u64 = 16;

/// Adapts the polling time to past waits.
#[derive(Debug)]
pub(crate) struct BusyPolling {
    bound_ns: u64,
    span_ns: u64,
}

impl BusyPolling {
    /// `None`: never poll.
    pub fn new(bound: Option<Duration>) -> Self {
        let bound_ns = bound.map_or(0, |bound| bound.as_nanos().try_into().unwrap_or(u64::MAX));
        Self { bound_ns, span_ns: bound_ns }
    }

    /// True if the loop ever polls before it sleeps.
    pub fn is_on(&self) -> bool {
        self.bound_ns > 0
    }

    /// How long to poll before the next sleep; 0: not at all.
    pub fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// Adapts to the duration of a wait, polling included.
    pub fn learn(&mut self, waited_ns: u64) {
        if waited_ns <= self.bound_ns {
            self.span_ns = self.bound_ns;
            return;
        }
        self.span_ns /= 2;
        if self.span_ns < self.bound_ns / PARTS {
            self.span_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_micros(64);

    #[test]
    fn loop_without_a_bound_never_polls() {
        let mut busy = BusyPolling::new(None);
        assert!(!busy.is_on());
        busy.learn(0);
        assert_eq!(busy.span_ns(), 0);
    }

    #[test]
    fn long_waits_end_busy_polling_and_one_short_wait_restarts_it() {
        let mut busy = BusyPolling::new(Some(BOUND));
        let mut spans = Vec::new();
        for _ in 0..6 {
            spans.push(busy.span_ns() / 1000);
            busy.learn(1_000_000);
        }
        assert_eq!(spans, [64, 32, 16, 8, 4, 0]);
        busy.learn(64_000);
        assert_eq!(busy.span_ns(), 64_000);
    }

    #[test]
    fn bound_that_fits_no_counter_is_the_longest_there_is() {
        let busy = BusyPolling::new(Some(Duration::MAX));
        assert_eq!(busy.span_ns(), u64::MAX);
    }
}
