//! Counters of a loop for `Loop.metrics()`.
//!
//! Owns: the sums and histograms, written by the loop's thread only, readable by any. Called by: the
//! turn, which passes the clock's values that it has, and by transports, for bytes. A wait that may
//! block costs two reads of the clock; everything else here is a few additions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::pulse::Counter;

/// Buckets of a histogram: below 1.024 µs, and twice as much each; the last has no bound.
pub const BUCKETS: usize = 26;
/// The first bound is `1 << FIRST_BOUND_SHIFT` nanoseconds.
const FIRST_BOUND_SHIFT: u32 = 10;

/// Durations by powers of two.
#[derive(Default)]
pub struct Histogram {
    counts: [Counter; BUCKETS],
    sum_ns: Counter,
    max_ns: AtomicU64,
}

impl Histogram {
    #[inline]
    pub fn record(&self, ns: u64) {
        let index = ((ns >> (FIRST_BOUND_SHIFT - 1)) | 1).ilog2() as usize;
        self.counts[index.min(BUCKETS - 1)].add(1);
        self.sum_ns.add(ns);
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(ns, Relaxed);
        }
    }

    /// The sum and the largest, in nanoseconds, then the counts.
    pub fn numbers(&self) -> Vec<u64> {
        let sums = [self.sum_ns.count(), self.max_ns.load(Relaxed)];
        sums.into_iter().chain(self.counts.iter().map(Counter::count)).collect()
    }
}

#[derive(Default)]
pub struct Meters {
    /// When the kernel was last polled, or woke the loop, or when the run began.
    polled_ns: AtomicU64,
    /// Time between two polls, in which events wait.
    pub lag: Histogram,
    /// How late timers were taken up.
    pub timer_delay: Histogram,
    /// From a poll to the last callback that was ready by then.
    pub queue_delay: Histogram,
    pub waited_ns: Counter,
    pub submitted: Counter,
    pub completed: Counter,
    pub accepted: Counter,
}

impl Meters {
    /// A run of the loop begins: the time between two runs is no lag.
    pub fn begins(&self, now_ns: u64) {
        self.polled_ns.store(now_ns, Relaxed);
    }

    /// The loop polls the kernel now, or is about to sleep.
    #[inline]
    pub fn polls(&self, now_ns: u64) {
        self.lag.record(now_ns.saturating_sub(self.polled_at(now_ns)));
    }

    /// It has slept.
    #[inline]
    pub fn woke(&self, now_ns: u64) {
        let slept_ns = self.polled_at(now_ns);
        self.waited_ns.add(now_ns.saturating_sub(slept_ns));
    }

    /// Notes the time; returns the one before. A load and a store: there is one writer.
    #[inline]
    fn polled_at(&self, now_ns: u64) -> u64 {
        let before_ns = self.polled_ns.load(Relaxed);
        self.polled_ns.store(now_ns, Relaxed);
        before_ns
    }

    /// The last of several callbacks that were ready at the poll is about to run.
    #[inline]
    pub fn drained(&self, now_ns: u64) {
        self.queue_delay.record(now_ns.saturating_sub(self.polled_ns.load(Relaxed)));
    }
}
