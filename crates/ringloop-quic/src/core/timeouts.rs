//! The deadlines of many connections in one heap.
//!
//! Each connection has one entry that counts: the one whose time it remembers. A deadline that moves to later
//! leaves its entry, which comes up too early and is put down again; packets move deadlines all the time, and
//! mostly to later. Bounded: an entry for each time that a deadline moved to earlier and has not come up yet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

#[derive(Default)]
pub(super) struct Timeouts {
    heap: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Timeouts {
    pub(super) fn push(&mut self, deadline: Instant, slot: u32) {
        self.heap.push(Reverse((deadline, slot)));
    }

    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.heap.peek().map(|Reverse(first)| *first)
    }

    pub(super) fn pop(&mut self) {
        self.heap.pop();
    }
}
