//! Who waits for room in the pool's queue.
//!
//! Called by: `driver::blocking_pool`, under its lock. Never does: wake or drop a waker, which may come back for the lock.
//!
//! All who wait are woken together, once there is room for many of them: to wake them for each piece of work that leaves
//! the queue would have each of thousands ask thousands of times. Until then each has one place, which it finds
//! without a search, and gives up when it is dropped.

use crate::limits;
use std::task::Waker;

/// Pieces of work that leave the queue before those who wait are woken. So many were in it when the first one came.
const ROUND_LEN: usize = if limits::BLOCKING_QUEUE > 1 {
    limits::BLOCKING_QUEUE / 2
} else {
    1
};

/// The wakers of this round.
#[derive(Debug, Default)]
pub(super) struct Room {
    round: u64,
    wakers: Vec<Option<Waker>>,
    /// Places that were given up.
    free: Vec<usize>,
    /// What has left the queue in this round.
    left_count: usize,
}

/// The place of one who waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    round: u64,
    index: usize,
}

impl Room {
    /// Have `waker` woken at the end of this round. Returns the one in its place, to be dropped without the lock.
    #[must_use]
    pub fn wait(&mut self, waker: &Waker, spot: &mut Option<Spot>) -> Option<Waker> {
        if self.is_empty() {
            self.left_count = 0;
        }
        if let Some(spot) = spot.filter(|spot| spot.round == self.round) {
            let here = &mut self.wakers[spot.index];
            let is_same = here.as_ref().is_some_and(|there| there.will_wake(waker));
            return if is_same {
                None
            } else {
                here.replace(waker.clone())
            };
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            self.wakers.len() - 1
        });
        self.wakers[index] = Some(waker.clone());
        *spot = Some(Spot {
            round: self.round,
            index,
        });
        None
    }

    pub fn leave(&mut self, spot: Spot) -> Option<Waker> {
        if spot.round != self.round {
            return None;
        }
        self.free.push(spot.index);
        self.wakers[spot.index].take()
    }

    /// Something has left the queue. Returns who is to be woken now.
    #[must_use]
    pub fn one_left(&mut self) -> Vec<Option<Waker>> {
        self.left_count += 1;
        if self.left_count < ROUND_LEN {
            return Vec::new();
        }
        self.end_round()
    }

    /// Returns all who wait.
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

    /// How many wait, and how many places there are.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.wakers.len() - self.free.len(), self.wakers.len())
    }
}
