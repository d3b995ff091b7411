//! The timers of futures: one heap of deadlines, first in first out on ties, never early.
//!
//! Called by: `Engine` (`bound`, `fire`) and `time::Sleep`. Never does: read the clock to wait; the
//! next deadline is an argument of the driver's wait.

use crate::sys::clock;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::HashMap;
use std::task::Waker;
use std::time::Duration;

/// Dead entries that are tolerated in the heap; past it, and past half of the heap, it is rebuilt.
const DEAD_ENTRIES_MAX: usize = 100;

/// Names a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimerKey(u64);

/// Deadlines and the wakers they wake.
#[derive(Debug)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(u64, TimerKey)>>,
    wakers: HashMap<TimerKey, Waker>,
    sequence: u64,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            wakers: HashMap::new(),
            sequence: 0,
        }
    }

    /// Wake `waker` once the monotonic clock has reached `deadline_ns`.
    pub(crate) fn insert(&mut self, deadline_ns: u64, waker: Waker) -> TimerKey {
        // The key is the sequence number: it breaks ties in order of insertion.
        let key = TimerKey(self.sequence);
        self.sequence += 1;
        self.heap.push(Reverse((deadline_ns, key)));
        self.wakers.insert(key, waker);
        key
    }

    /// Change the waker of a timer; `false` when it has fired.
    pub(crate) fn update(&mut self, key: TimerKey, waker: &Waker) -> bool {
        match self.wakers.get_mut(&key) {
            Some(known) => {
                known.clone_from(waker);
                true
            }
            None => false,
        }
    }

    /// Forget a timer; its place in the heap is cleared later.
    pub(crate) fn remove(&mut self, key: TimerKey) {
        self.wakers.remove(&key);
        let dead = self.heap.len() - self.wakers.len();
        if dead > DEAD_ENTRIES_MAX && dead > self.heap.len() / 2 {
            let wakers = &self.wakers;
            self.heap
                .retain(|Reverse((_, key))| wakers.contains_key(key));
        }
    }

    /// The shorter of `timeout` and the time to the next deadline.
    pub(super) fn bound(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        while let Some(Reverse((_, key))) = self.heap.peek() {
            if self.wakers.contains_key(key) {
                break;
            }
            self.heap.pop();
        }
        let Some(Reverse((deadline_ns, _))) = self.heap.peek() else {
            return timeout;
        };
        let left = Duration::from_nanos(deadline_ns.saturating_sub(clock::monotonic_ns()));
        Some(timeout.map_or(left, |timeout| timeout.min(left)))
    }

    /// Wake everything whose deadline has passed, in order of deadline.
    pub(super) fn fire(&mut self) {
        let Some(Reverse((first_ns, _))) = self.heap.peek() else {
            return;
        };
        let now_ns = clock::monotonic_ns();
        if *first_ns > now_ns {
            return;
        }
        while let Some(Reverse((deadline_ns, key))) = self.heap.peek().copied() {
            if deadline_ns > now_ns {
                break;
            }
            self.heap.pop();
            if let Some(waker) = self.wakers.remove(&key) {
                waker.wake();
            }
        }
    }
}
