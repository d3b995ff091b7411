//! The receive pools of the readiness driver: the same contract as the ring's provided buffers.
//!
//! Called by: `driver::readiness`. Makes no system call.

use super::completion::BufferId;
use crate::buf::PoolKind;
use crate::op::Key;
use std::sync::Arc;

/// A detached buffer. Dropping it loses the buffer to the pool.
// One word, as it is moved often.
#[derive(Debug)]
pub(super) struct Detached(Box<Value>);

#[derive(Debug)]
struct Value {
    id: BufferId,
    memory: Box<[u8]>,
    pool: Arc<()>,
}

impl Detached {
    pub fn pool(&self) -> usize {
        self.0.id.pool()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0.memory
    }
}

/// A fixed number of equal buffers, handed out by number.
#[derive(Debug)]
pub(super) struct Pool {
    kind: PoolKind,
    memory: Vec<Box<[u8]>>,
    free: Vec<u32>,
    /// Identifies this pool when a detached buffer comes back.
    identity: Arc<()>,
    /// Boxes of buffers that came back, without their memory, for reuse.
    #[allow(clippy::vec_box)] // The boxes are reused.
    values: Vec<Box<Value>>,
    /// Receives that found no free buffer.
    pub starved: Vec<Key>,
}

impl Pool {
    /// Buffers are allocated on first use: a loop that never receives owns none.
    pub fn new(kind: PoolKind) -> Self {
        let count = u32::from(kind.buffer_count());
        Self {
            kind,
            memory: (0..count).map(|_| Box::default()).collect(),
            free: (0..count).rev().collect(),
            identity: Arc::new(()),
            values: Vec::new(),
            starved: Vec::new(),
        }
    }

    /// Takes the most recently returned free buffer, which is still in the cache.
    pub fn take(&mut self) -> Option<BufferId> {
        let index = self.free.pop()?;
        let buffer = &mut self.memory[index as usize];
        if buffer.is_empty() {
            *buffer = vec![0; self.kind.buffer_len() as usize].into_boxed_slice();
        }
        Some(BufferId::new(self.kind, index))
    }

    /// Takes up to `count` free buffers with their memory, to be filled at once.
    pub fn take_batch(&mut self, count: usize) -> Vec<(BufferId, Box<[u8]>)> {
        let ids = std::iter::from_fn(|| self.take()).take(count);
        let ids: Vec<_> = ids.collect();
        ids.into_iter()
            .map(|id| {
                let memory = std::mem::take(&mut self.memory[id.index() as usize]);
                (id, memory)
            })
            .collect()
    }

    /// Puts the memory of a taken buffer back; the buffer stays taken.
    pub fn restore(&mut self, id: &BufferId, memory: Box<[u8]>) {
        self.memory[id.index() as usize] = memory;
    }

    /// Detaches a taken buffer.
    pub fn detach(&mut self, id: BufferId) -> Detached {
        let memory = std::mem::take(&mut self.memory[id.index() as usize]);
        if let Some(mut value) = self.values.pop() {
            (value.id, value.memory) = (id, memory);
            return Detached(value);
        }
        Detached(Box::new(Value {
            id,
            memory,
            pool: Arc::clone(&self.identity),
        }))
    }

    /// Reattaches a detached buffer; `None` if it is another pool's.
    pub fn reattach(&mut self, buffer: Detached) -> Option<BufferId> {
        let Detached(mut value) = buffer;
        if !Arc::ptr_eq(&self.identity, &value.pool) {
            return None;
        }
        let id = BufferId(value.id.0);
        self.restore(&id, std::mem::take(&mut value.memory));
        self.values.push(value);
        Some(id)
    }

    /// A taken buffer, for the system call to fill.
    pub fn bytes_mut(&mut self, id: &BufferId) -> &mut [u8] {
        &mut self.memory[id.index() as usize]
    }

    /// The first `len` bytes of a buffer.
    pub fn bytes(&self, id: &BufferId, len: usize) -> &[u8] {
        let buffer = &self.memory[id.index() as usize];
        &buffer[..len.min(buffer.len())]
    }

    pub fn put(&mut self, id: BufferId) {
        self.free.push(id.index());
    }
}
