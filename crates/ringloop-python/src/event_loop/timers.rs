//! Timers: a heap of deadlines, and a lane for zero delays.
//!
//! Deadlines are nanoseconds of the monotonic clock, rounded up, so that no callback runs early.
//! Ties run in the order of scheduling. Cancelling only marks the handle; when more than half of
//! more than [`limits::TIMERS_SWEEP_MIN`] are marked, they are swept out.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use pyo3::prelude::*;

use crate::ffi::{self, Obj, Visited, Visitor};
use crate::limits;

struct Timer {
    deadline_ns: i64,
    sequence: u64,
    handle: Obj,
}

impl Timer {
    fn order(&self) -> (i64, u64) {
        (self.deadline_ns, self.sequence)
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Timer {}

/// All timers of a loop.
#[derive(Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    /// Timers with zero delay: their deadlines never decrease, so no heap is needed.
    lane: VecDeque<Timer>,
    next_sequence: u64,
    /// Marked handles in heap and lane.
    cancelled_count: usize,
}

impl Timers {
    pub fn push(&mut self, deadline_ns: i64, handle: Obj) -> PyResult<()> {
        ffi::spare()?;
        self.heap.try_reserve(1).map_err(ffi::no_memory)?;
        let timer = self.timer(deadline_ns, handle);
        self.heap.push(Reverse(timer));
        Ok(())
    }

    /// Adds a timer that is due at `now_ns`.
    pub fn push_due(&mut self, now_ns: i64, handle: Obj) -> PyResult<()> {
        if self.lane.back().is_some_and(|last| last.deadline_ns > now_ns) {
            return self.push(now_ns, handle);
        }
        self.lane.try_reserve(1).map_err(ffi::no_memory)?;
        let timer = self.timer(now_ns, handle);
        self.lane.push_back(timer);
        Ok(())
    }

    fn timer(&mut self, deadline_ns: i64, handle: Obj) -> Timer {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        Timer { deadline_ns, sequence, handle }
    }

    /// How many wait, without cancelled ones.
    pub fn len(&self) -> usize {
        (self.heap.len() + self.lane.len()).saturating_sub(self.cancelled_count)
    }

    #[inline]
    pub fn next_deadline_ns(&self) -> Option<i64> {
        let heap = self.heap.peek().map(|Reverse(timer)| timer.deadline_ns);
        let lane = self.lane.front().map(|timer| timer.deadline_ns);
        match (heap, lane) {
            (Some(heap), Some(lane)) => Some(heap.min(lane)),
            (one, other) => one.or(other),
        }
    }

    pub fn peek(&self) -> Option<&Obj> {
        if self.lane_is_next() {
            self.lane.front().map(|timer| &timer.handle)
        } else {
            self.heap.peek().map(|Reverse(timer)| &timer.handle)
        }
    }

    /// Takes the earliest timer if it is due; returns how late it is, too.
    pub fn pop_due(&mut self, now_ns: i64) -> Option<(Obj, u64)> {
        let deadline_ns = self.next_deadline_ns()?;
        if deadline_ns > now_ns {
            return None;
        }
        // A deadline may be as early as the clock can say.
        let late_ns = now_ns.saturating_sub(deadline_ns).unsigned_abs();
        self.pop().map(|handle| (handle, late_ns))
    }

    pub fn pop(&mut self) -> Option<Obj> {
        if self.lane_is_next() {
            self.lane.pop_front().map(|timer| timer.handle)
        } else {
            self.heap.pop().map(|Reverse(timer)| timer.handle)
        }
    }

    fn lane_is_next(&self) -> bool {
        match (self.lane.front(), self.heap.peek()) {
            (Some(lane), Some(Reverse(heap))) => lane < heap,
            (lane, _) => lane.is_some(),
        }
    }

    /// Counts a handle cancelled while queued; true if a sweep is worthwhile.
    pub fn count_cancelled(&mut self) -> bool {
        self.cancelled_count += 1;
        let total = self.heap.len() + self.lane.len();
        total > limits::TIMERS_SWEEP_MIN && self.cancelled_count * 2 > total
    }

    /// Records that a cancelled handle was popped.
    pub fn uncount_cancelled(&mut self) {
        self.cancelled_count = self.cancelled_count.saturating_sub(1);
    }

    /// Removes every handle for which `is_cancelled`; the caller drops them outside the cell.
    /// Without memory for the list they stay until the next sweep.
    pub fn sweep(&mut self, is_cancelled: impl Fn(&Obj) -> bool) -> Vec<Obj> {
        let mut swept = Vec::new();
        if swept.try_reserve(self.cancelled_count).is_err() {
            return swept;
        }
        let mut heap = std::mem::take(&mut self.heap).into_vec();
        let cancelled = heap.extract_if(.., |Reverse(timer)| is_cancelled(&timer.handle));
        swept.extend(cancelled.map(|Reverse(timer)| timer.handle));
        // A heap in use keeps its memory: reallocating is slow.
        if heap.len() < heap.capacity() / 8 {
            heap.shrink_to(heap.len() * 2);
        }
        self.heap = heap.into();
        for _ in 0..self.lane.len() {
            if let Some(timer) = self.lane.pop_front() {
                if is_cancelled(&timer.handle) {
                    swept.push(timer.handle);
                } else {
                    self.lane.push_back(timer);
                }
            }
        }
        self.cancelled_count = 0;
        swept
    }

    /// The handles, cancelled ones too, the earliest first.
    pub fn handles(&self, py: Python<'_>) -> PyResult<Vec<Obj>> {
        let (mut timers, mut handles) = (Vec::new(), Vec::new());
        let count = self.heap.len() + self.lane.len();
        timers.try_reserve_exact(count).map_err(ffi::no_memory)?;
        handles.try_reserve_exact(count).map_err(ffi::no_memory)?;
        timers.extend(self.heap.iter().map(|Reverse(timer)| timer).chain(&self.lane));
        timers.sort_unstable();
        handles.extend(timers.into_iter().map(|timer| timer.handle.clone_ref(py)));
        Ok(handles)
    }

    /// Moves everything out, to be dropped outside the cell.
    pub fn take(&mut self) -> impl Iterator<Item = Obj> + use<> {
        let Self { heap, lane, .. } = std::mem::take(self);
        let heap = heap.into_vec().into_iter().map(|Reverse(timer)| timer);
        heap.chain(lane).map(|timer| timer.handle)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty() && self.lane.is_empty()
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        for Reverse(timer) in &self.heap {
            visitor.visit(&timer.handle)?;
        }
        for timer in &self.lane {
            visitor.visit(&timer.handle)?;
        }
        Visited::Continue(())
    }
}

/// The first nanosecond at which the clock reads `when_seconds` or later.
pub fn deadline_ns(when_seconds: f64) -> i64 {
    // The cast saturates: an infinite or absurd time is never due, and NaN is due at once.
    (when_seconds * 1e9).ceil() as i64
}
