//! How long a loop looks for completions before it sleeps.
//!
//! Owns: the span, and what it learns from each wait. Called by: `Engine::park`. Never does: look, wait, or read a clock.
//!
//! A thread that sleeps is woken by an interrupt of its processor, which on a virtual machine may take longer than the
//! request that it is woken for. Who looks for the answer meanwhile does not pay that, but pays with processor time,
//! and in vain where nothing comes soon. So the loop looks for as long as its waits mostly take, within the user's bound:
//!
//! ```text
//!   a wait that was over within the bound       ─▸ look for so long the next time
//!   a wait that took longer                     ─▸ half as long; below a sixteenth of the bound not at all
//! ```
//! Hence an idle loop sleeps: after five long waits in a row it looks for nothing any more.

use std::time::Duration;

/// Into how many parts the bound is halved before the loop sleeps at once.
const PARTS: u64 = 16;

/// What a loop knows of its waits.
#[derive(Debug)]
pub(crate) struct BusyPolling {
    bound_ns: u64,
    span_ns: u64,
}

impl BusyPolling {
    /// `None`: never look.
    pub fn new(bound: Option<Duration>) -> Self {
        let bound_ns = bound.map_or(0, |bound| bound.as_nanos().try_into().unwrap_or(u64::MAX));
        Self {
            bound_ns,
            span_ns: bound_ns,
        }
    }

    /// Whether the loop ever looks before it sleeps.
    pub fn is_on(&self) -> bool {
        self.bound_ns > 0
    }

    /// How long to look before the next sleep; 0 is not at all.
    pub fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// Take note of how long a wait took, with what was looked for before it.
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
    fn loop_without_a_bound_never_looks() {
        let mut busy = BusyPolling::new(None);
        assert!(!busy.is_on());
        busy.learn(0);
        assert_eq!(busy.span_ns(), 0);
    }

    #[test]
    fn long_waits_end_the_looking_and_one_short_wait_begins_it_again() {
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
