//! Timers of futures: a heap of deadlines, first in first out on ties, never early.
//!
//! Owns: the heap, and a slot per timer for its waker. Called by: `Engine` (`bound`, `fire`) and
//! `time::Sleep`. The driver waits; it gets the next deadline as an argument.
//!
//! Removing a timer frees its slot at once; its entry stays in the heap, where the slot's generation
//! shows that the slot has been reused, until it comes up or the heap is cleaned.

use crate::deadlines::Deadlines;
use crate::slab::{Key, Slab};
use crate::sys::clock;
use std::task::Waker;
use std::time::Duration;

/// Names a timer: its slot, and a sequence number unique among all timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    // Compared first: it breaks ties in order of insertion.
    sequence: u64,
    slot: Key,
}

/// Deadlines and the wakers they wake.
#[derive(Debug, Default)]
pub struct Timers {
    deadlines: Deadlines<u64, TimerKey>,
    wakers: Slab<Waker>,
    sequence: u64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Timers that have neither fired nor been removed.
    pub(crate) fn live_count(&self) -> usize {
        self.wakers.len()
    }

    /// Wakes `waker` once the monotonic clock has reached `deadline_ns`.
    pub(crate) fn insert(&mut self, deadline_ns: u64, waker: Waker) -> TimerKey {
        let key = TimerKey { sequence: self.sequence, slot: self.wakers.insert(waker) };
        self.sequence += 1;
        self.deadlines.push(deadline_ns, key);
        key
    }

    /// Changes the waker of a timer; `false` if it has fired.
    pub(crate) fn update(&mut self, key: TimerKey, waker: &Waker) -> bool {
        let known = self.wakers.get_mut(key.slot);
        known.map(|known| known.clone_from(waker)).is_some()
    }

    /// Removes a timer; its heap entry is removed later.
    pub(crate) fn remove(&mut self, key: TimerKey) {
        drop(self.wakers.remove(key.slot));
        let wakers = &self.wakers;
        self.deadlines.tidy(wakers.len(), |_, key| wakers.get(key.slot).is_some());
    }

    /// The shorter of `timeout` and the time to the next deadline.
    pub(crate) fn bound(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let wakers = &self.wakers;
        self.deadlines.first_live(|_, key| wakers.get(key.slot).is_some());
        self.deadlines.bound(timeout)
    }

    /// Wakes everything whose deadline has passed, in order of deadline.
    pub(crate) fn fire(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now_ns = clock::monotonic_ns();
        while let Some((_, key)) = self.deadlines.pop_due(now_ns) {
            if let Some(waker) = self.wakers.remove(key.slot) {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::Mutex;
    use std::task::Wake;

    struct Note(u32, Arc<Mutex<Vec<u32>>>);

    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            self.1.lock().expect("no panic").push(self.0);
        }
    }

    fn waker(number: u32, fired: &Arc<Mutex<Vec<u32>>>) -> Waker {
        Waker::from(Arc::new(Note(number, Arc::clone(fired))))
    }

    #[test]
    fn ties_fire_in_the_order_of_insertion_also_in_used_slots() {
        let (mut timers, fired) = (Timers::new(), Arc::default());
        let first: Vec<_> = (0..4).map(|number| timers.insert(5, waker(number, &fired))).collect();
        timers.remove(first[1]);
        timers.remove(first[2]);
        // Into the slots of 2 and 1, in this order.
        for number in 4..7 {
            timers.insert(5, waker(number, &fired));
        }
        timers.insert(4, waker(7, &fired));
        timers.fire();
        assert_eq!(*fired.lock().expect("no panic"), [7, 0, 3, 4, 5, 6]);
        assert_eq!(timers.live_count(), 0);
    }

    #[test]
    fn key_of_a_fired_timer_is_stale() {
        let (mut timers, fired) = (Timers::new(), Arc::default());
        let over = timers.insert(1, waker(1, &fired));
        timers.fire();
        let other = timers.insert(u64::MAX, waker(2, &fired));
        assert_eq!(over.slot.index, other.slot.index);
        assert!(!timers.update(over, &waker(3, &fired)));
        timers.remove(over);
        assert!(timers.update(other, &waker(4, &fired)));
        assert_eq!(timers.live_count(), 1);
    }

    #[test]
    fn forgotten_timers_do_not_fill_the_heap() {
        let (mut timers, fired) = (Timers::new(), Arc::default());
        let kept = timers.insert(u64::MAX, waker(0, &fired));
        for number in 1..10_000 {
            let key = timers.insert(u64::MAX - 1, waker(number, &fired));
            timers.remove(key);
        }
        assert!(timers.deadlines.len() <= 202);
        assert!(timers.insert(u64::MAX, waker(0, &fired)).slot.index <= 2);
        assert!(timers.update(kept, &waker(1, &fired)));
    }
}
