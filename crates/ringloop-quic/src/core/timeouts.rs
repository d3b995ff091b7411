//! The deadlines of many connections in one heap.
//!
//! Each connection has one entry that counts: the one whose time it remembers. A deadline that moves to later
//! leaves its entry, which comes up too early and is put down again; packets move deadlines all the time, and
//! mostly to later. One that moves to earlier leaves its entry too, perhaps until much later: entries that do not count
//! are thrown out once there are several times as many as connections.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Entries a connection, and besides, that may stand there.
const ENTRIES_EACH: usize = 4;
const ENTRIES_BESIDES: usize = 64;

#[derive(Default)]
pub(super) struct Timeouts {
    heap: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Timeouts {
    pub(super) fn push(&mut self, deadline: Instant, slot: u32) {
        self.heap.push(Reverse((deadline, slot)));
    }

    /// Whether so many stand there that those which do not count have to go, with so many connections. Most do not count
    /// then, so it costs little each.
    pub(super) fn is_crowded(&self, connection_count: usize) -> bool {
        self.heap.len() > connection_count * ENTRIES_EACH + ENTRIES_BESIDES
    }

    /// Keep those that count, once each: a deadline that is put down again stands there twice.
    pub(super) fn retain(&mut self, counts: impl Fn(Instant, u32) -> bool) {
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        entries.retain(|Reverse(entry)| counts(entry.0, entry.1));
        entries.sort_unstable();
        entries.dedup();
        self.heap = entries.into();
    }

    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.heap.peek().map(|Reverse(first)| *first)
    }

    pub(super) fn pop(&mut self) {
        self.heap.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn entries_that_do_not_count_are_thrown_out_and_the_others_come_in_order() {
        let now = Instant::now();
        let mut timeouts = Timeouts::default();
        let armed = |slot: u32| now + Duration::from_millis(u64::from(slot));
        for slot in [2, 1, 0, 1] {
            timeouts.push(armed(slot), slot);
        }
        let mut dead_count = 0;
        while !timeouts.is_crowded(3) {
            timeouts.push(now + Duration::from_secs(1000 + dead_count), 0);
            dead_count += 1;
        }
        assert_eq!(
            dead_count as usize,
            3 * ENTRIES_EACH + ENTRIES_BESIDES - 4 + 1
        );
        timeouts.retain(|deadline, slot| deadline == armed(slot));
        assert!(!timeouts.is_crowded(0));
        for slot in 0..3 {
            assert_eq!(timeouts.first(), Some((armed(slot), slot)));
            timeouts.pop();
        }
        assert_eq!(timeouts.first(), None);
    }
}
