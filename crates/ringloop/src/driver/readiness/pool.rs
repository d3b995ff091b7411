//! A receive pool of the readiness driver, and the receives that wait for its buffers.
//!
//! Owned by the driver, which serves them.

use crate::buf::PoolKind;
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
}

impl Pool {
    pub(super) fn new(kind: PoolKind) -> io::Result<Self> {
        Ok(Self {
            buffers: BufferPool::new(kind.buffer_count(), kind.buffer_len())?,
            starved: VecDeque::new(),
        })
    }

    /// True if a starved receive can go on.
    pub(super) fn can_resume_starved(&self) -> bool {
        !self.starved.is_empty() && self.buffers.has_free()
    }
}
