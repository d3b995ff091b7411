//! The receive pools of the ring driver: groups of provided buffers, and the receives that wait for
//! one.
//!
//! Owns: the buffer rings. Called by: `driver::uring`. Arms nothing itself; reports which receives
//! can go on.
//!
//! # Invariants
//! 1. A buffer ring is freed only by [`ProvidedPools::free`]; dropping the pools leaks what the kernel may
//!    still write to.

use super::completion::BufferId;
use super::lease::{self, Lease};
use crate::buf::PoolKind;
use crate::op::Key;
use crate::sys::uring::abi::Cqe;
use crate::sys::uring::{BufferRing, ChunkRing, Ring};
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
    memory: ManuallyDrop<Memory>,
    /// Buffers that hold received bytes, in pools of whole buffers.
    claimed_count: usize,
    /// Multishot receives that ended with `ENOBUFS`, the longest waiting first.
    starved: VecDeque<Key>,
}

/// How a pool's buffers are used.
#[derive(Debug)]
enum Memory {
    Whole(BufferRing),
    Pieces(ChunkRing),
}

impl Pool {
    /// How many receives could go on.
    fn room(&self) -> usize {
        match &*self.memory {
            Memory::Whole(ring) => usize::from(ring.count()).saturating_sub(self.claimed_count),
            // One buffer serves many receives.
            Memory::Pieces(ring) if ring.offers_some() => usize::MAX,
            Memory::Pieces(_) => 0,
        }
    }
}

impl ProvidedPools {
    /// Provides a pool's buffers to the kernel, if that has not been done.
    pub fn open(&mut self, ring: &Ring, kind: PoolKind) -> io::Result<()> {
        let pool = &mut self.pools[kind as usize];
        if pool.is_none() {
            let (group, count, len) = (kind.group(), kind.buffer_count(), kind.buffer_len());
            let memory = match kind {
                PoolKind::Pieces => Memory::Pieces(ChunkRing::register(ring, group, count, len)?),
                _ => Memory::Whole(BufferRing::register(ring, group, count, len)?),
            };
            *pool = Some(Pool {
                memory: ManuallyDrop::new(memory),
                claimed_count: 0,
                starved: VecDeque::new(),
            });
        }
        Ok(())
    }

    /// Claims the buffer that a completion names.
    ///
    /// # Safety
    /// As [`BufferRing::claim`]: `cqe` was just popped from the ring of these pools, and belongs to
    /// an entry that named the group of `kind`.
    pub unsafe fn claim(&mut self, kind: PoolKind, cqe: &Cqe) -> Option<BufferId> {
        let pool = self.pools[kind as usize].as_mut()?;
        let index = match &mut *pool.memory {
            Memory::Whole(ring) => {
                // SAFETY: this function's contract.
                let id = unsafe { ring.claim(cqe) }?;
                pool.claimed_count += 1;
                u32::from(id)
            }
            // SAFETY: the same; the driver claims every completion, as it pops it.
            Memory::Pieces(ring) => unsafe { ring.claim(cqe) }?,
        };
        Some(BufferId::new(kind, index))
    }

    /// Claims every buffer that a bundle's completion has filled, in order.
    ///
    /// # Safety
    /// As [`ProvidedPools::claim`], for the group of [`PoolKind::Bundles`].
    pub unsafe fn claim_bundle(&mut self, cqe: &Cqe) -> Vec<BufferId> {
        let kind = PoolKind::Bundles;
        let mut ids = Vec::new();
        if let Some(pool) = &mut self.pools[kind as usize]
            && let Memory::Whole(ring) = &mut *pool.memory
        {
            // SAFETY: this function's contract.
            unsafe { ring.claim_bundle(cqe, &mut ids) };
            pool.claimed_count += ids.len();
        }
        let ids = ids.into_iter().map(u32::from);
        ids.map(|index| BufferId::new(kind, index)).collect()
    }

    /// The first `len` bytes of a claimed buffer.
    pub fn bytes(&self, id: &BufferId, len: usize) -> &[u8] {
        match &self.pools[id.pool()] {
            Some(pool) => match &*pool.memory {
                Memory::Whole(ring) => ring.bytes(id.index() as u16, len),
                Memory::Pieces(ring) => ring.bytes(id.index(), len),
            },
            None => &[],
        }
    }

    /// Provides a claimed buffer to the kernel again.
    // By value: an id is returned once.
    #[allow(clippy::needless_pass_by_value)]
    pub fn recycle(&mut self, id: BufferId) {
        if let Some(pool) = &mut self.pools[id.pool()] {
            match &mut *pool.memory {
                Memory::Whole(ring) => {
                    ring.recycle(id.index() as u16);
                    pool.claimed_count -= 1;
                }
                Memory::Pieces(ring) => ring.recycle(id.index()),
            }
        }
    }

    /// Detaches a claimed buffer.
    pub fn lease(&mut self, id: BufferId) -> Option<Lease> {
        let pool = self.pools[id.pool()].as_mut()?;
        let buffer = match &mut *pool.memory {
            Memory::Whole(ring) => ring.detach(id.index() as u16)?,
            Memory::Pieces(ring) => ring.detach(id.index())?,
        };
        Some(Lease(lease::Memory::Ring(buffer)))
    }

    /// Provides a detached buffer to the kernel again.
    pub fn give_back(&mut self, lease: Lease) {
        let lease::Memory::Ring(buffer) = lease.0 else {
            return;
        };
        // The group number is the index here.
        let Some(Some(pool)) = self.pools.get_mut(usize::from(buffer.group())) else {
            return;
        };
        match &mut *pool.memory {
            Memory::Whole(ring) => pool.claimed_count -= usize::from(ring.take_back(buffer)),
            Memory::Pieces(ring) => {
                ring.take_back(&buffer);
            }
        }
    }

    /// A receive found no buffer.
    pub fn starve(&mut self, kind: PoolKind, key: Key) {
        if let Some(pool) = &mut self.pools[kind as usize] {
            pool.starved.push_back(key);
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
        pools.any(|pool| !pool.starved.is_empty() && pool.room() > 0)
    }

    /// The starved receives that can go on, one per free buffer: the others would find none, and
    /// lose their position in the queue. Counts the pools' free buffers rather than those returned
    /// since the last wait: a receive may report that it ran out after the buffers were returned.
    pub fn take_resumable(&mut self) -> Vec<Key> {
        if !self.can_resume_starved() {
            return Vec::new();
        }
        let pools = self.pools.iter_mut().flatten();
        let fed = pools.flat_map(|pool| {
            let count = pool.room().min(pool.starved.len());
            pool.starved.drain(..count)
        });
        fed.collect()
    }

    /// Free every pool.
    ///
    /// # Safety
    /// Called once, and nothing in flight names a group any more.
    pub unsafe fn free(&mut self) {
        for mut pool in std::mem::take(&mut self.pools).into_iter().flatten() {
            // SAFETY: this function's contract; the pool is not used after this.
            unsafe { ManuallyDrop::drop(&mut pool.memory) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::uring::Config;

    #[test]
    fn longest_starved_receives_resume_first_one_per_buffer() {
        let mut ring = Ring::new(&Config {
            entries: 8,
            cq_entries: 64,
            polling: None,
        })
        .expect("a ring");
        ring.enable().expect("a ring that runs");
        let mut pools = ProvidedPools::default();
        let kind = PoolKind::Streams;
        pools.open(&ring, kind).expect("a pool");
        let keys: Vec<_> = (1..=5).map(Key::from_user_data).collect();
        for key in &keys {
            pools.starve(kind, *key);
        }
        let claim_all_but = |free: usize, pools: &mut ProvidedPools| {
            let pool = pools.pools[kind as usize].as_mut().expect("it was opened");
            pool.claimed_count = usize::from(kind.buffer_count()) - free;
        };
        claim_all_but(0, &mut pools);
        assert!(!pools.can_resume_starved() && pools.take_resumable().is_empty());
        claim_all_but(2, &mut pools);
        assert_eq!(pools.take_resumable(), keys[..2]);
        claim_all_but(100, &mut pools);
        assert_eq!(pools.take_resumable(), keys[2..]);
        assert!(!pools.can_resume_starved());
        // SAFETY: nothing was ever armed.
        unsafe { pools.free() };
    }
}
