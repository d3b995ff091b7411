//! The waiters for room in the pool's queue.
//!
//! Called by: `driver::blocking_pool`, under its lock. Never wakes or drops a waker, which may take
//! the lock again.
//!
//! All waiters are woken together, once there is room for many of them: waking them for every piece
//! of work that leaves the queue would make thousands of waiters ask thousands of times. Until then
//! each keeps one slot, found without a search and freed on drop.

use crate::limits;
use std::task::Waker;

/// Pieces of work that leave the queue before the waiters are woken; at least as many were queued
/// when the first one came.
const ROUND_LEN: usize = if limits::BLOCKING_QUEUE > 1 { limits::BLOCKING_QUEUE / 2 } else { 1 };

/// The wakers of this round.
#[derive(Debug, Default)]
pub(super) struct Room {
    round: u64,
    wakers: Vec<Option<Waker>>,
    /// Freed slots.
    free: Vec<usize>,
    /// Pieces of work that have left the queue in this round.
    left_count: usize,
}

/// The slot of a waiter.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoomSlot {
    round: u64,
    index: usize,
}

impl Room {
    /// Wakes `waker` at the end of this round. Returns the waker it replaces, to be dropped outside
    /// the lock.
    #[must_use]
    pub fn wait(&mut self, waker: &Waker, slot: &mut Option<RoomSlot>) -> Option<Waker> {
        if self.is_empty() {
            self.left_count = 0;
        }
        if let Some(slot) = slot.filter(|slot| slot.round == self.round) {
            let here = &mut self.wakers[slot.index];
            let is_same = here.as_ref().is_some_and(|there| there.will_wake(waker));
            return if is_same { None } else { here.replace(waker.clone()) };
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            self.wakers.len() - 1
        });
        self.wakers[index] = Some(waker.clone());
        *slot = Some(RoomSlot { round: self.round, index });
        None
    }

    pub fn leave(&mut self, slot: RoomSlot) -> Option<Waker> {
        if slot.round != self.round {
            return None;
        }
        self.free.push(slot.index);
        self.wakers[slot.index].take()
    }

    /// A piece of work has left the queue. Returns the wakers to wake now.
    #[must_use]
    pub fn note_dequeued(&mut self) -> Vec<Option<Waker>> {
        self.left_count += 1;
        if self.left_count < ROUND_LEN {
            return Vec::new();
        }
        self.end_round()
    }

    /// Returns all waiters.
    #[must_use]
    pub fn end_round(&mut self) -> Vec<Option<Waker>> {
        self.round += 1;
        self.left_count = 0;
        self.free.clear();
        std::mem::take(&mut self.wakers)
    }

    fn is_empty(&self) -> bool {
        self.wakers.len() == self.free.len()
    }

    /// Number of waiters, and of slots.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.wakers.len() - self.free.len(), self.wakers.len())
    }
}
