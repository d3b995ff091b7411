//! The deadlines of time-outs on the readiness driver.
//!
//! Owns: the heap, and how many of its entries nobody waits for any more. Called by: the driver.
//! Never does: settle an operation.

use crate::op::Key;
use crate::sys::clock;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Deadlines of cancelled time-outs that are tolerated; past it, and past half of all, they are
/// cleared.
const DEAD_MAX: usize = 100;

/// All deadlines, earliest first.
#[derive(Debug, Default)]
pub struct Deadlines {
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    dead_count: usize,
}

impl Deadlines {
    /// Add one, on the monotonic clock.
    pub fn push(&mut self, deadline_ns: u64, key: Key) {
        self.heap
            .push(Reverse((deadline_ns, key.index, key.generation)));
    }

    /// The shorter of `timeout` and what is left until the first one.
    pub fn bound(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(Reverse((deadline_ns, ..))) = self.heap.peek() else {
            return timeout;
        };
        let left = Duration::from_nanos(deadline_ns.saturating_sub(clock::monotonic_ns()));
        Some(timeout.map_or(left, |timeout| timeout.min(left)))
    }

    /// Take the first one, where it has passed.
    pub fn pop_due(&mut self) -> Option<Key> {
        let Reverse((deadline_ns, index, generation)) = self.heap.peek().copied()?;
        if deadline_ns > clock::monotonic_ns() {
            return None;
        }
        self.heap.pop();
        Some(Key { index, generation })
    }

    /// One that was cancelled has been taken.
    pub fn dead_one_is_gone(&mut self) {
        self.dead_count -= 1;
    }

    /// One was cancelled; clear the cancelled ones, where there are many. `is_armed` tells the others.
    pub fn one_died(&mut self, mut is_armed: impl FnMut(Key) -> bool) {
        self.dead_count += 1;
        if self.dead_count <= DEAD_MAX || self.dead_count <= self.heap.len() / 2 {
            return;
        }
        self.heap.retain(|Reverse((_, index, generation))| {
            let (index, generation) = (*index, *generation);
            is_armed(Key { index, generation })
        });
        self.dead_count = 0;
    }
}
