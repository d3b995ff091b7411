//! The receive pools of the ring driver: groups of provided buffers, and who waits for one.
//!
//! Owns: the buffer rings. Called by: `driver::uring`. Never does: arm anything; it says which
//! receives could go on.
//!
//! # Invariants
//! 1. A buffer ring is freed only by [`Lent::free`]; dropping the pools leaks what the kernel may
//!    still write to.

use super::lease::{Lease, Memory};
use super::{BufferId, Key, PoolKind};
use crate::sys::uring::abi::Cqe;
use crate::sys::uring::{BufferRing, Ring};
use std::io;
use std::mem::ManuallyDrop;

/// Every pool, those that nobody has used yet included.
#[derive(Debug, Default)]
pub(super) struct Lent {
    pools: [Option<Pool>; PoolKind::COUNT],
}

#[derive(Debug)]
struct Pool {
    /// Dropped by hand (invariant 1).
    ring: ManuallyDrop<BufferRing>,
    /// Buffers that hold received bytes.
    claimed_count: usize,
    /// Multishot receives that ended for want of a buffer.
    starved: Vec<Key>,
}

impl Pool {
    fn has_free_buffer(&self) -> bool {
        self.claimed_count < usize::from(self.ring.count())
    }
}

impl Lent {
    /// Lend a pool's buffers to the kernel, where it has not got them yet.
    pub fn open(&mut self, ring: &Ring, kind: PoolKind) -> io::Result<()> {
        let pool = &mut self.pools[kind as usize];
        if pool.is_none() {
            let (group, count) = (kind.group(), kind.buffer_count());
            let buffers = BufferRing::register(ring, group, count, kind.buffer_len())?;
            *pool = Some(Pool {
                ring: ManuallyDrop::new(buffers),
                claimed_count: 0,
                starved: Vec::new(),
            });
        }
        Ok(())
    }

    /// Take the buffer that a completion names out of the kernel's hands.
    ///
    /// # Safety
    /// As [`BufferRing::claim`]: `cqe` was popped from the ring of these pools just now, and answers an
    /// entry that named the group of `kind`.
    pub unsafe fn claim(&mut self, kind: PoolKind, cqe: &Cqe) -> Option<BufferId> {
        let pool = self.pools[kind as usize].as_mut()?;
        // SAFETY: this function's contract.
        let index = unsafe { pool.ring.claim(cqe) }?;
        pool.claimed_count += 1;
        Some(BufferId { pool: kind, index })
    }

    /// The first `len` bytes of a claimed buffer.
    pub fn bytes(&self, id: &BufferId, len: usize) -> &[u8] {
        match &self.pools[id.pool as usize] {
            Some(pool) => pool.ring.bytes(id.index, len),
            None => &[],
        }
    }

    /// Offer a claimed buffer to the kernel again.
    // By value: an id is given back once.
    #[allow(clippy::needless_pass_by_value)]
    pub fn recycle(&mut self, id: BufferId) {
        if let Some(pool) = &mut self.pools[id.pool as usize] {
            pool.ring.recycle(id.index);
            pool.claimed_count -= 1;
        }
    }

    /// Make a claimed buffer a value of its own.
    pub fn lease(&mut self, id: BufferId) -> Option<Lease> {
        let pool = self.pools[id.pool as usize].as_mut()?;
        let buffer = pool.ring.detach(id.index)?;
        Some(Lease(Memory::Ring(id.pool, buffer)))
    }

    /// Offer such a buffer to the kernel again.
    pub fn give_back(&mut self, lease: Lease) {
        if let Memory::Ring(kind, buffer) = lease.0
            && let Some(pool) = &mut self.pools[kind as usize]
            && pool.ring.take_back(buffer)
        {
            pool.claimed_count -= 1;
        }
    }

    /// A receive found no buffer.
    pub fn starve(&mut self, kind: PoolKind, key: Key) {
        if let Some(pool) = &mut self.pools[kind as usize] {
            pool.starved.push(key);
        }
    }

    /// Whether a starved receive could go on.
    pub fn can_feed(&self) -> bool {
        let mut pools = self.pools.iter().flatten();
        pools.any(|pool| !pool.starved.is_empty() && pool.has_free_buffer())
    }

    /// The starved receives that can go on. Asked of the pools, not of what came back since the last
    /// wait: a receive may report that it ran out after the buffers were returned.
    pub fn take_fed(&mut self) -> Vec<Key> {
        let pools = self.pools.iter_mut().flatten();
        let fed = pools.filter(|pool| pool.has_free_buffer());
        fed.flat_map(|pool| std::mem::take(&mut pool.starved))
            .collect()
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
