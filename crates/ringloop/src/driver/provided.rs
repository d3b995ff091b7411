//! The receive pools of the ring driver: groups of provided buffers, and the receives that wait for
//! one.
//!
//! Owns: the buffer rings. Called by: `driver::uring`. Arms nothing itself; reports which receives
//! can go on.
//!
//! # Invariants
//! 1. A buffer ring is freed only by [`ProvidedPools::free`]; dropping the pools leaks what the kernel may
//!    still write to.

use super::table::Table;
use crate::buf::PoolKind;
use crate::op::Key;
use crate::sys::pool::PoolBuffer;
use crate::sys::uring::abi::{self, Cqe};
use crate::sys::uring::{BufferRing, Ring};
use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;

/// Every pool, including pools that are not open yet.
#[derive(Debug, Default)]
pub(super) struct ProvidedPools {
    pools: [Option<Pool>; PoolKind::COUNT],
}

#[derive(Debug)]
struct Pool {
    /// Dropped by hand (invariant 1).
    ring: ManuallyDrop<BufferRing>,
    /// One buffer serves many receives.
    is_shared: bool,
    /// Multishot receives that ended with `ENOBUFS`, the longest waiting first.
    starved: VecDeque<Key>,
    /// Futures may have left buffers of it untaken since that was last looked for.
    may_be_untaken: bool,
}

impl Pool {
    fn open(ring: &Ring, kind: PoolKind) -> io::Result<Self> {
        let (group, count, len) = (kind.group(), kind.buffer_count(), kind.buffer_len());
        let is_shared = kind == PoolKind::Pieces;
        let flags = if is_shared { abi::IOU_PBUF_RING_INC } else { 0 };
        let ring = BufferRing::register(ring, group, count, len, flags)?;
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            is_shared,
            starved: VecDeque::new(),
            may_be_untaken: false,
        })
    }

    /// How many receives could go on.
    fn room(&self) -> usize {
        match self.ring.offered_count() {
            1.. if self.is_shared => usize::MAX,
            count => count,
        }
    }

    /// Starved receives that can go on, one per free buffer: the others would find none, and lose
    /// their position in the queue. Counts the free buffers, not the returned ones: a receive may
    /// report that it ran out after the buffers were returned.
    #[cold]
    fn feed(&mut self, table: &mut Table, fed: &mut Vec<Key>) {
        if self.room() == 0 && self.may_be_untaken {
            self.may_be_untaken = false;
            table.move_untaken(|buffer| self.ring.has_handed_out(buffer));
            self.ring.collect();
        }
        if self.room() == 0 && table.is_any_awaited(&self.starved) {
            // Without memory they wait for a buffer.
            drop(self.ring.renew());
        }
        let count = self.room().min(self.starved.len());
        self.may_be_untaken |= count > 0;
        fed.extend(self.starved.drain(..count));
    }
}

impl ProvidedPools {
    /// Provides a pool's buffers to the kernel, if that has not been done.
    pub fn open(&mut self, ring: &Ring, kind: PoolKind) -> io::Result<()> {
        let pool = &mut self.pools[kind as usize];
        if pool.is_none() {
            *pool = Some(Pool::open(ring, kind)?);
        }
        Ok(())
    }

    /// Provides new buffers to another ring, for each pool that is open. Returns the old ones, to be
    /// freed. Receives that wait for a buffer still do.
    pub fn reopen(&mut self, ring: &Ring) -> io::Result<Self> {
        let mut new = Self::default();
        for (kind, pool) in PoolKind::ALL.into_iter().zip(&self.pools) {
            if pool.is_some() {
                new.open(ring, kind)?;
            }
        }
        for (new, old) in new.pools.iter_mut().zip(&mut self.pools) {
            if let (Some(new), Some(old)) = (new, old) {
                new.starved = std::mem::take(&mut old.starved);
                new.may_be_untaken = old.may_be_untaken;
            }
        }
        Ok(std::mem::replace(self, new))
    }

    /// Claims the buffer that a completion names.
    ///
    /// # Safety
    /// As [`BufferRing::claim`]: `cqe` was just popped from the ring of these pools, and belongs to
    /// an entry that named the group of `kind`.
    pub unsafe fn claim(&mut self, kind: PoolKind, cqe: &Cqe) -> Option<PoolBuffer> {
        let pool = self.pools[kind as usize].as_mut()?;
        // SAFETY: this function's contract; the driver claims every completion, as it pops it.
        unsafe { pool.ring.claim(cqe) }
    }

    /// Claims every buffer that a bundle's completion has filled, in order.
    ///
    /// # Safety
    /// As [`ProvidedPools::claim`], for the group of [`PoolKind::Bundles`].
    pub unsafe fn claim_bundle(&mut self, cqe: &Cqe) -> Vec<PoolBuffer> {
        match &mut self.pools[PoolKind::Bundles as usize] {
            // SAFETY: this function's contract.
            Some(pool) => unsafe { pool.ring.claim_bundle(cqe) },
            None => Vec::new(),
        }
    }

    /// A receive found no buffer.
    pub fn starve(&mut self, kind: PoolKind, key: Key) {
        if let Some(pool) = &mut self.pools[kind as usize] {
            pool.starved.push_back(key);
            pool.may_be_untaken = true;
        }
    }

    /// The receives that found no buffer.
    pub fn starved(&self) -> impl Iterator<Item = Key> {
        let pools = self.pools.iter().flatten();
        pools.flat_map(|pool| pool.starved.iter().copied())
    }

    /// True if a starved receive can go on.
    pub fn can_resume_starved(&self) -> bool {
        let mut pools = self.pools.iter().flatten();
        pools.any(|pool| !pool.starved.is_empty() && (pool.room() > 0 || pool.ring.has_returned()))
    }

    /// Provides the buffers that were dropped to the kernel again; for receives that would find none
    /// still, those whose bytes no future has taken. Returns the starved receives that can go on.
    pub fn collect(&mut self, table: &mut Table) -> Vec<Key> {
        let mut fed = Vec::new();
        for pool in self.pools.iter_mut().flatten() {
            pool.ring.collect();
            if !pool.starved.is_empty() {
                pool.feed(table, &mut fed);
            }
        }
        fed
    }

    /// Free every pool.
    ///
    /// # Safety
    /// Called once, and nothing in flight names a group any more.
    pub unsafe fn free(&mut self) {
        for mut pool in std::mem::take(&mut self.pools).into_iter().flatten() {
            // SAFETY: this function's contract; the pool is not used after this.
            unsafe { ManuallyDrop::drop(&mut pool.ring) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::uring::{Config, abi};

    #[test]
    fn longest_starved_receives_resume_first_one_per_buffer() {
        let mut ring =
            Ring::new(&Config { entries: 8, cq_entries: 64, polling: None }).expect("a ring");
        ring.enable().expect("a ring that runs");
        let mut pools = ProvidedPools::default();
        let mut table = Table::new();
        let kind = PoolKind::Streams;
        pools.open(&ring, kind).expect("a pool");
        let keys: Vec<_> = (1..=5).map(Key::from_user_data).collect();
        for key in &keys {
            pools.starve(kind, *key);
        }
        let claimed = (0..u32::from(kind.buffer_count())).map(|id| {
            let cqe = Cqe {
                flags: abi::IORING_CQE_F_BUFFER | id << abi::IORING_CQE_BUFFER_SHIFT,
                ..Cqe::default()
            };
            // SAFETY: each buffer is claimed once, and nothing was ever armed.
            unsafe { pools.claim(kind, &cqe) }.expect("offered")
        });
        let mut claimed: Vec<_> = claimed.collect();
        assert!(!pools.can_resume_starved() && pools.collect(&mut table).is_empty());
        claimed.truncate(claimed.len() - 2);
        assert!(pools.can_resume_starved());
        assert_eq!(pools.collect(&mut table), keys[..2]);
        claimed.truncate(claimed.len() - 100);
        assert_eq!(pools.collect(&mut table), keys[2..]);
        assert!(!pools.can_resume_starved());
        // SAFETY: nothing was ever armed.
        unsafe { pools.free() };
    }
}
