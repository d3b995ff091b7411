//! The receive pool of the readiness driver: the same contract as the ring's provided buffers.
//!
//! Called by: `driver::readiness`. Never does: a system call.

use super::BufferId;
use std::mem::MaybeUninit;

/// A fixed number of equal buffers, handed out by number.
#[derive(Debug)]
pub(super) struct Pool {
    memory: Vec<Box<[u8]>>,
    free: Vec<u16>,
    buffer_len: usize,
}

impl Pool {
    /// The buffers are made when they are first needed: a loop that never receives owns none.
    pub fn new(count: u16, buffer_len: usize) -> Self {
        let memory = (0..count).map(|_| Box::default()).collect();
        Self {
            memory,
            free: (0..count).rev().collect(),
            buffer_len,
        }
    }

    /// Take a free buffer; the most recently returned one, which is still in the cache.
    pub fn take(&mut self) -> Option<BufferId> {
        let id = self.free.pop()?;
        let buffer = &mut self.memory[usize::from(id)];
        if buffer.is_empty() {
            *buffer = vec![0; self.buffer_len].into_boxed_slice();
        }
        Some(BufferId(id))
    }

    /// The memory of a buffer that was taken, to be written.
    pub fn uninit(&mut self, id: &BufferId) -> &mut [MaybeUninit<u8>] {
        let buffer = &mut *self.memory[usize::from(id.0)];
        // SAFETY: initialised bytes may be viewed as possibly uninitialised ones; the system calls
        // that write here only ever write bytes.
        unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) }
    }

    /// The first `len` bytes of a buffer.
    pub fn bytes(&self, id: &BufferId, len: usize) -> &[u8] {
        &self.memory[usize::from(id.0)][..len]
    }

    pub fn put(&mut self, id: BufferId) {
        self.free.push(id.0);
    }
}
