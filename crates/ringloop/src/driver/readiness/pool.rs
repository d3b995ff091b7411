//! A receive pool of the readiness driver, and the receives that wait for its buffers.
//!
//! Owned by the driver, which serves them.

use crate::buf::PoolKind;
use crate::driver::table::Table;
use crate::op::Key;
use crate::sys::pool::BufferPool;
use std::collections::VecDeque;
use std::io;

/// A receive pool, as the ring's provided buffers.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) buffers: BufferPool,
    /// Receives that found no free buffer, the longest waiting first.
    pub(super) starved: VecDeque<Key>,
    /// Futures may have left buffers of it untaken since that was last looked for.
    may_be_untaken: bool,
}

impl Pool {
    pub(super) fn new(kind: PoolKind) -> io::Result<Self> {
        Ok(Self {
            buffers: BufferPool::new(kind.buffer_count(), kind.buffer_len())?,
            starved: VecDeque::new(),
            may_be_untaken: false,
        })
    }

    /// A receive found no buffer.
    pub(super) fn starve(&mut self, key: Key) {
        self.starved.push_back(key);
        self.may_be_untaken = true;
    }

    /// True if a starved receive can go on.
    pub(super) fn can_resume_starved(&self) -> bool {
        !self.starved.is_empty() && self.buffers.has_free()
    }

    /// The receive that has waited longest for a buffer, if one is free.
    pub(super) fn next_starved(&mut self) -> Option<Key> {
        if !self.can_resume_starved() {
            return None;
        }
        self.may_be_untaken = true;
        self.starved.pop_front()
    }

    /// Finds buffers for receives that would find none still: those whose bytes no future has taken.
    /// If values hold all, and a future waits, buffers of other memory.
    pub(super) fn feed(&mut self, table: &mut Table) {
        if self.starved.is_empty() || self.buffers.has_free() {
            return;
        }
        if self.may_be_untaken {
            self.may_be_untaken = false;
            table.move_untaken(|buffer| self.buffers.has_handed_out(buffer));
        }
        if table.is_any_awaited(&self.starved) {
            // Without memory they wait for a buffer.
            drop(self.buffers.renew());
        }
    }
}
