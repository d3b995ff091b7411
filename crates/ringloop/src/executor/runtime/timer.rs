//! The timers of futures: one heap of deadlines, first in first out on ties, never early.
//!
//! Owns: the heap, and a slot a timer for its waker. Called by: `Engine` (`bound`, `fire`) and
//! `time::Sleep`. Never does: read the clock to wait; the next deadline is an argument of the driver's wait.
//!
//! A timer that is forgotten gives its slot back at once; its entry stays in the heap, where the sequence
//! number shows that the slot is somebody else's by now, until it comes up or the heap is rebuilt.

use crate::sys::clock;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;
use std::time::Duration;

/// Dead entries that are tolerated in the heap; past it, and past half of the heap, it is rebuilt.
const DEAD_ENTRIES_MAX: usize = 100;

/// Names a timer: its slot, while that holds this number of all timers ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    // Compared first: it breaks ties in order of insertion.
    sequence: u64,
    slot: u32,
}

/// Deadlines and the wakers they wake.
#[derive(Debug)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(u64, TimerKey)>>,
    slots: Vec<Slot>,
    free: Option<u32>,
    live_count: usize,
    sequence: u64,
}

#[derive(Debug)]
enum Slot {
    Armed { sequence: u64, waker: Waker },
    Free { next: Option<u32> },
}

impl Slot {
    fn holds(&self, key: TimerKey) -> bool {
        matches!(self, Self::Armed { sequence, .. } if *sequence == key.sequence)
    }
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: None,
            live_count: 0,
            sequence: 0,
        }
    }

    /// Timers that have neither fired nor been forgotten.
    pub(crate) fn live_count(&self) -> usize {
        self.live_count
    }

    /// Wake `waker` once the monotonic clock has reached `deadline_ns`.
    pub(crate) fn insert(&mut self, deadline_ns: u64, waker: Waker) -> TimerKey {
        let slot = self.free.unwrap_or(self.slots.len() as u32);
        let sequence = self.sequence;
        let armed = Slot::Armed { sequence, waker };
        match self.slots.get_mut(slot as usize) {
            Some(place) => {
                if let Slot::Free { next } = *place {
                    self.free = next;
                }
                *place = armed;
            }
            None => self.slots.push(armed),
        }
        self.sequence += 1;
        self.live_count += 1;
        let key = TimerKey { sequence, slot };
        self.heap.push(Reverse((deadline_ns, key)));
        key
    }

    /// Change the waker of a timer; `false` when it has fired.
    pub(crate) fn update(&mut self, key: TimerKey, waker: &Waker) -> bool {
        match self.slots.get_mut(key.slot as usize) {
            Some(Slot::Armed {
                sequence,
                waker: known,
            }) if *sequence == key.sequence => {
                known.clone_from(waker);
                true
            }
            _ => false,
        }
    }

    /// Forget a timer; its place in the heap is cleared later.
    pub(crate) fn remove(&mut self, key: TimerKey) {
        drop(self.take(key));
        let dead = self.heap.len() - self.live_count;
        if dead > DEAD_ENTRIES_MAX && dead > self.heap.len() / 2 {
            let slots = &self.slots;
            self.heap
                .retain(|Reverse((_, key))| slots[key.slot as usize].holds(*key));
        }
    }

    /// The waker of a timer that has neither fired nor been forgotten; its slot is free.
    fn take(&mut self, key: TimerKey) -> Option<Waker> {
        let place = self.slots.get_mut(key.slot as usize)?;
        if !place.holds(key) {
            return None;
        }
        let free = Slot::Free { next: self.free };
        self.free = Some(key.slot);
        self.live_count -= 1;
        match std::mem::replace(place, free) {
            Slot::Armed { waker, .. } => Some(waker),
            Slot::Free { .. } => None,
        }
    }

    /// The shorter of `timeout` and the time to the next deadline.
    pub(crate) fn bound(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        while let Some(Reverse((_, key))) = self.heap.peek() {
            if self.slots[key.slot as usize].holds(*key) {
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
    pub(crate) fn fire(&mut self) {
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
            if let Some(waker) = self.take(key) {
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
        let first: Vec<_> = (0..4)
            .map(|number| timers.insert(5, waker(number, &fired)))
            .collect();
        timers.remove(first[1]);
        timers.remove(first[2]);
        // Into the slots of 2 and 1, in this order.
        for number in 4..7 {
            timers.insert(5, waker(number, &fired));
        }
        timers.insert(4, waker(7, &fired));
        timers.fire();
        assert_eq!(*fired.lock().expect("no panic"), [7, 0, 3, 4, 5, 6]);
        assert_eq!(timers.live_count, 0);
    }

    #[test]
    fn key_of_a_timer_that_is_over_names_nobody() {
        let (mut timers, fired) = (Timers::new(), Arc::default());
        let over = timers.insert(1, waker(1, &fired));
        timers.fire();
        let other = timers.insert(u64::MAX, waker(2, &fired));
        assert_eq!(over.slot, other.slot);
        assert!(!timers.update(over, &waker(3, &fired)));
        timers.remove(over);
        assert!(timers.update(other, &waker(4, &fired)));
        assert_eq!(timers.live_count, 1);
    }

    #[test]
    fn forgotten_timers_do_not_fill_the_heap() {
        let (mut timers, fired) = (Timers::new(), Arc::default());
        let kept = timers.insert(u64::MAX, waker(0, &fired));
        for number in 1..10_000 {
            let key = timers.insert(u64::MAX - 1, waker(number, &fired));
            timers.remove(key);
        }
        assert!(timers.heap.len() <= 2 * DEAD_ENTRIES_MAX + 2);
        assert!(timers.slots.len() <= 2);
        assert!(timers.update(kept, &waker(1, &fired)));
    }
}
