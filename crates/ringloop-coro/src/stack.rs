//! Stacks: memory with a guard at its low end, pooled by size.
//!
//! Owns: the slabs that stacks are cut from, and the free stacks. Called by: `scheduler`, on its
//! own thread; `switch`, which puts a coroutine on a [`Stack`].
//!
//! ```text
//!   slab (one mapping)
//!   low ┌───────┬──────────────┬───────┬──────────────┬ ─ ─
//!       │ guard │ stack 0    ◀─│ guard │ stack 1    ◀─│        a stack grows down to its guard
//!       └───────┴──────────────┴───────┴──────────────┴ ─ ─
//! ```
//! Pages are allocated when first touched, and on Windows committed then (`sys/memory/windows.rs`). The pool keeps up to `limits::STACKS_KEPT` free stacks
//! with their pages, and frees the pages of others.

use crate::limits;
pub(crate) use crate::sys::Stack;
use crate::sys::{self, Mapping};
use corosensei::stack::valgrind::ValgrindStackRegistration;
use std::io;

/// The free stacks of one worker, by size.
pub(crate) struct StackPool {
    /// The default size first.
    sizes: Vec<SizeClass>,
}

/// Stacks of one size.
struct SizeClass {
    /// With the guard.
    len: usize,
    /// Last in, first out: its memory is in cache.
    free: Vec<Stack>,
    slabs: Vec<Mapping>,
    /// Tells valgrind of the stacks; a few instructions each outside of valgrind.
    registrations: Vec<ValgrindStackRegistration>,
    /// Offset of the first unused stack in the last slab.
    unused_at: usize,
}

/// Length of a stack with `bytes` usable bytes.
fn len_of(bytes: usize) -> usize {
    let bytes = bytes.clamp(limits::STACK_BYTES_MIN, limits::STACK_BYTES_MAX);
    bytes.next_multiple_of(sys::page_len()) + sys::guard_len()
}

impl StackPool {
    /// An empty pool whose stacks have `bytes` usable bytes by default.
    pub fn new(bytes: usize) -> Self {
        Self { sizes: vec![SizeClass::new(len_of(bytes))] }
    }

    /// A stack of at least `bytes` usable bytes, or of the default size.
    pub fn take(&mut self, bytes: Option<usize>) -> io::Result<Stack> {
        let class = match bytes {
            None => &mut self.sizes[0],
            Some(bytes) => self.class_of(len_of(bytes)),
        };
        class.take()
    }

    pub fn put_back(&mut self, stack: Stack) {
        self.class_of(stack.len()).put_back(stack);
    }

    fn class_of(&mut self, len: usize) -> &mut SizeClass {
        let known = self.sizes.iter().position(|class| class.len == len);
        let index = known.unwrap_or_else(|| {
            self.sizes.push(SizeClass::new(len));
            self.sizes.len() - 1
        });
        &mut self.sizes[index]
    }
}

impl SizeClass {
    fn new(len: usize) -> Self {
        Self { len, free: Vec::new(), slabs: Vec::new(), registrations: Vec::new(), unused_at: 0 }
    }

    fn take(&mut self) -> io::Result<Stack> {
        match self.free.pop() {
            Some(stack) => Ok(stack),
            None => self.cut(),
        }
    }

    fn put_back(&mut self, stack: Stack) {
        if self.free.len() < limits::STACKS_KEPT {
            self.free.push(stack);
            return;
        }
        let low = stack.low().get();
        if let Some(slab) = self.slabs.iter().find(|slab| slab.contains(low)) {
            // A stack that the system does not give back is not used again.
            self.free.extend(slab.discard(stack));
        }
    }

    /// The next stack of the last slab, or of a new one.
    fn cut(&mut self) -> io::Result<Stack> {
        let room = self.slabs.last().map_or(0, |slab| slab.len() - self.unused_at);
        if room < self.len {
            let count =
                (limits::SLAB_STACKS_MIN << self.slabs.len().min(16)).min(limits::SLAB_STACKS_MAX);
            self.slabs.push(Mapping::new(count * self.len)?);
            self.unused_at = 0;
        }
        let (Some(slab), at) = (self.slabs.last(), self.unused_at) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let stack = slab.cut(at, self.len)?;
        self.unused_at += self.len;
        let start = std::ptr::with_exposed_provenance_mut(stack.low().get());
        let registration = ValgrindStackRegistration::new(start, self.len);
        self.registrations.push(registration);
        Ok(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a byte into each of the highest pages.
    fn touch(stack: &Stack, bytes: usize) {
        for offset in (1..=bytes).step_by(sys::page_len()) {
            let address = stack.top().get() - offset;
            sys::memory_of_tests(address);
        }
    }

    fn put_back_all(pool: &mut StackPool, stacks: Vec<Stack>) {
        for stack in stacks {
            pool.put_back(stack);
        }
    }

    #[test]
    fn stack_put_back_last_is_taken_first() {
        let mut pool = StackPool::new(0);
        let (first, second) = (pool.take(None).unwrap(), pool.take(None).unwrap());
        assert_ne!(first.low(), second.low());
        let low = first.low();
        pool.put_back(second);
        pool.put_back(first);
        assert_eq!(pool.take(None).unwrap().low(), low);
    }

    #[test]
    fn stacks_do_not_overlap_and_have_the_requested_size() {
        let mut pool = StackPool::new(20_000);
        let sizes = [None, Some(100_000), None, Some(100_000), Some(1)];
        let mut stacks: Vec<_> = sizes.iter().map(|size| pool.take(*size).unwrap()).collect();
        for (stack, size) in stacks.iter().zip(sizes) {
            let usable = stack.len() - sys::guard_len();
            assert!(usable >= size.unwrap_or(20_000).max(limits::STACK_BYTES_MIN));
        }
        stacks.sort_by_key(Stack::low);
        for pair in stacks.windows(2) {
            assert!(pair[0].top() <= pair[1].low());
        }
        put_back_all(&mut pool, stacks);
    }

    #[test]
    fn thousands_of_stacks_come_from_few_mappings() {
        let mut pool = StackPool::new(0);
        let stacks: Vec<_> = (0..5000).map(|_| pool.take(None).unwrap()).collect();
        for stack in &stacks {
            touch(stack, 1);
        }
        assert!(pool.sizes[0].slabs.len() < 16);
        put_back_all(&mut pool, stacks);
        assert_eq!(pool.sizes[0].free.len(), 5000);
    }

    #[test]
    fn stack_beyond_the_cap_loses_its_pages_and_reads_as_zeros() {
        let mut pool = StackPool::new(0);
        let stacks: Vec<_> = (0..=limits::STACKS_KEPT).map(|_| pool.take(None).unwrap()).collect();
        let last = stacks.last().unwrap().top().get() - 1;
        assert_eq!(sys::memory_of_tests(last), 0);
        assert_eq!(sys::memory_of_tests(last), 1);
        put_back_all(&mut pool, stacks);
        assert_eq!(sys::memory_of_tests(last), 0);
    }
}
