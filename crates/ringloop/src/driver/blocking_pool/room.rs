//! The waiters for room in the pool's queue.
//!
//! Called by: `driver::blocking_pool`, under its lock. Never wakes or drops a waker, which may take
//! the lock again.
//!
//! All waiters are woken together, once there is room for many of them: waking them for every piece
//! of work that leaves the queue would make thousands of waiters ask thousands of times. Until then
//! each keeps one slot, found without a search and freed on drop.

use crate::limits;
use crate::slab::{Key, Slab};
use std::task::Waker;

/// Pieces of work that leave the queue before the waiters are woken; at least as many were queued
/// when the first one came.
const ROUND_LEN: usize = if limits::BLOCKING_QUEUE > 1 { limits::BLOCKING_QUEUE / 2 } else { 1 };

/// The wakers of this round.
#[derive(Debug, Default)]
pub(super) struct Room {
    round: u64,
    wakers: Slab<Waker>,
    /// Pieces of work that have left the queue in this round.
    left_count: usize,
}

/// The slot of a waiter.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoomSlot {
    round: u64,
    key: Key,
}

impl Room {
    /// Wakes `waker` at the end of this round. Returns the waker it replaces, to be dropped outside
    /// the lock.
    #[must_use]
    pub fn wait(&mut self, waker: &Waker, slot: &mut Option<RoomSlot>) -> Option<Waker> {
        if self.wakers.is_empty() {
            self.left_count = 0;
        }
        if let Some(slot) = slot.filter(|slot| slot.round == self.round)
            && let Some(known) = self.wakers.get_mut(slot.key)
        {
            let is_same = known.will_wake(waker);
            return (!is_same).then(|| std::mem::replace(known, waker.clone()));
        }
        *slot = Some(RoomSlot { round: self.round, key: self.wakers.insert(waker.clone()) });
        None
    }

    pub fn leave(&mut self, slot: RoomSlot) -> Option<Waker> {
        if slot.round == self.round { self.wakers.remove(slot.key) } else { None }
    }

    /// A piece of work has left the queue. Returns the wakers to wake now.
    #[must_use]
    pub fn note_dequeued(&mut self) -> Vec<Waker> {
        self.left_count += 1;
        if self.left_count < ROUND_LEN { Vec::new() } else { self.end_round() }
    }

    /// Returns all waiters.
    #[must_use]
    pub fn end_round(&mut self) -> Vec<Waker> {
        self.round += 1;
        self.left_count = 0;
        self.wakers.take().collect()
    }

    /// Number of waiters, and of slots.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.wakers.len(), self.wakers.slot_count())
    }
}
