//! A heap of deadlines, the earliest first, that is cleaned now and then.
//!
//! A deadline that is cancelled or moved leaves a dead entry, which the caller recognises when it comes up. Dead entries are
//! cleared once they are many, and more than the live ones.

use crate::sys::clock;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Dead entries that are tolerated; past it, and past half of the heap, they are cleared.
const DEAD_MAX: usize = 100;

/// See the module's text. Ties come in the order of `T`.
#[derive(Debug)]
pub struct Deadlines<D, T> {
    heap: BinaryHeap<Reverse<(D, T)>>,
}

impl<D: Ord, T: Ord> Default for Deadlines<D, T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new() }
    }
}

impl<D: Copy + Ord, T: Copy + Ord> Deadlines<D, T> {
    /// How many entries there are, those included that do not count.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Add one.
    #[inline]
    pub fn push(&mut self, deadline: D, item: T) {
        self.heap.push(Reverse((deadline, item)));
    }

    /// The earliest.
    #[inline]
    pub fn first(&self) -> Option<(D, T)> {
        self.heap.peek().map(|Reverse(first)| *first)
    }

    /// The earliest live entry; dead ones before it are removed.
    pub fn first_live(&mut self, mut counts: impl FnMut(D, T) -> bool) -> Option<(D, T)> {
        while let Some((deadline, item)) = self.first() {
            if counts(deadline, item) {
                return Some((deadline, item));
            }
            self.heap.pop();
        }
        None
    }

    /// Take the earliest.
    #[inline]
    pub fn pop(&mut self) -> Option<(D, T)> {
        self.heap.pop().map(|Reverse(first)| first)
    }

    /// Take the earliest, where it is due.
    #[inline]
    pub fn pop_due(&mut self, now: D) -> Option<(D, T)> {
        self.first().filter(|first| first.0 <= now)?;
        self.pop()
    }

    /// Removes dead entries if they are too many; at most `live_count` entries are live.
    #[inline]
    pub fn tidy(&mut self, live_count: usize, mut counts: impl FnMut(D, T) -> bool) {
        let dead_count = self.heap.len().saturating_sub(live_count);
        if dead_count > DEAD_MAX && dead_count > self.heap.len() / 2 {
            self.heap.retain(|Reverse((deadline, item))| counts(*deadline, *item));
        }
    }
}

impl<T: Copy + Ord> Deadlines<u64, T> {
    /// The shorter of `timeout` and what is left until the earliest, in nanoseconds of the monotonic clock.
    #[inline]
    pub fn bound(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some((deadline_ns, _)) = self.first() else {
            return timeout;
        };
        let left = Duration::from_nanos(deadline_ns.saturating_sub(clock::monotonic_ns()));
        Some(timeout.map_or(left, |timeout| timeout.min(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_entries_are_cleared_and_the_others_come_in_order() {
        let mut deadlines = Deadlines::default();
        for item in [2, 1, 0] {
            deadlines.push(item, item);
        }
        for dead in 0..10_000 {
            deadlines.push(1000 + dead, 1);
            deadlines.tidy(3, |deadline, item| deadline == item);
        }
        assert!(deadlines.len() <= 2 * DEAD_MAX + 4, "{}", deadlines.len());
        assert_eq!(deadlines.pop_due(0), Some((0, 0)));
        assert_eq!(deadlines.pop_due(0), None);
        assert_eq!(deadlines.first_live(|_, item| item == 2), Some((2, 2)));
        assert_eq!(deadlines.pop(), Some((2, 2)));
    }
}
