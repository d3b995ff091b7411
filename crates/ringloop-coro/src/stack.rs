//! Stacks: memory with a guard at its low end, handed out and taken back.
//!
//! Owns: the slabs that stacks are cut from, and the stacks that are free.
//! Called by: `host`, on its own thread. Never does: run on a stack.
//!
//! ```text
//!   slab (one mapping)
//!   low ┌───────┬──────────────┬───────┬──────────────┬ ─ ─
//!       │ guard │ stack 0    ◀─│ guard │ stack 1    ◀─│        a stack grows down to its guard
//!       └───────┴──────────────┴───────┴──────────────┴ ─ ─
//! ```
//! The memory behind a stack is taken page by page when it is first touched, and given back by `trim`.

use crate::limits;
use crate::switch::ValgrindNote;
use crate::sys::{self, Mapping};
use std::io;
use std::num::NonZeroUsize;

/// One stack. It names memory of its pool's, which outlives it.
#[derive(Debug)]
pub(crate) struct Stack {
    low: NonZeroUsize,
    len: usize,
}

impl Stack {
    /// The lowest address: of the guard.
    pub fn low(&self) -> NonZeroUsize {
        self.low
    }

    /// Bytes, with the guard.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address past the highest byte.
    pub fn top(&self) -> NonZeroUsize {
        self.low.saturating_add(self.len)
    }

    /// Where the first frame begins: a little below the top, and each stack at another distance, so that what many
    /// coroutines keep at the root of theirs does not meet in the same few sets of a cache.
    pub fn base(&self) -> NonZeroUsize {
        let number = self.low.get() / self.len;
        let below = number % limits::STACK_COLOURS * limits::STACK_COLOUR_BYTES;
        self.low.saturating_add(self.len - below)
    }
}

/// The free stacks of one worker, by size.
#[derive(Debug)]
pub(crate) struct StackPool {
    /// The runtime's own size first.
    sizes: Vec<SizeClass>,
}

/// Stacks of one size.
#[derive(Debug)]
struct SizeClass {
    /// With the guard.
    len: usize,
    /// The last one back goes out first: its memory is in cache.
    free: Vec<Stack>,
    slabs: Vec<Mapping>,
    /// What valgrind knows of them; a few instructions each where it does not watch.
    noted: Vec<ValgrindNote>,
    /// Where in the last slab the next stack that was never used begins.
    unused_at: usize,
}

/// The whole of a stack for so many usable bytes.
fn len_of(bytes: usize) -> usize {
    let bytes = bytes.clamp(limits::STACK_BYTES_MIN, limits::STACK_BYTES_MAX);
    bytes.next_multiple_of(sys::page_len()) + sys::page_len()
}

impl StackPool {
    /// No stacks yet; `bytes` is what a coroutine gets that does not ask for a size.
    pub fn new(bytes: usize) -> Self {
        Self {
            sizes: vec![SizeClass::new(len_of(bytes))],
        }
    }

    /// A stack of at least so many usable bytes, or of the pool's own size.
    pub fn take(&mut self, bytes: Option<usize>) -> io::Result<Stack> {
        let index = match bytes {
            None => 0,
            Some(bytes) => self.index_of(len_of(bytes)),
        };
        self.sizes[index].take()
    }

    /// Take a stack back.
    pub fn give(&mut self, stack: Stack) {
        let index = self.index_of(stack.len);
        self.sizes[index].give(stack);
    }

    fn index_of(&mut self, len: usize) -> usize {
        if let Some(index) = self.sizes.iter().position(|size| size.len == len) {
            return index;
        }
        self.sizes.push(SizeClass::new(len));
        self.sizes.len() - 1
    }
}

impl SizeClass {
    fn new(len: usize) -> Self {
        Self {
            len,
            free: Vec::new(),
            slabs: Vec::new(),
            noted: Vec::new(),
            unused_at: 0,
        }
    }

    fn take(&mut self) -> io::Result<Stack> {
        match self.free.pop() {
            Some(stack) => Ok(stack),
            None => self.cut(),
        }
    }

    fn give(&mut self, stack: Stack) {
        if self.free.len() >= limits::STACKS_KEPT {
            // Where it fails the memory stays with the stack, which is as good as before.
            drop(self.slab_of(&stack).map(|slab| {
                slab.forget_contents(stack.low.get() + sys::page_len(), stack.top().get())
            }));
        }
        self.free.push(stack);
    }

    fn slab_of(&self, stack: &Stack) -> Option<&Mapping> {
        self.slabs
            .iter()
            .find(|slab| slab.contains(stack.low.get()))
    }

    /// The next stack of the last slab, or of a new one.
    fn cut(&mut self) -> io::Result<Stack> {
        let room = self
            .slabs
            .last()
            .map_or(0, |slab| slab.len() - self.unused_at);
        if room < self.len {
            let count =
                (limits::SLAB_STACKS_MIN << self.slabs.len().min(16)).min(limits::SLAB_STACKS_MAX);
            self.slabs.push(Mapping::new(count * self.len)?);
            self.unused_at = 0;
        }
        let (Some(slab), at) = (self.slabs.last(), self.unused_at) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        slab.guard(at)?;
        let low = slab.low().saturating_add(at);
        self.unused_at += self.len;
        let stack = Stack { low, len: self.len };
        self.noted.push(ValgrindNote::new(&stack));
        Ok(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Use the highest bytes of a stack, a byte a page.
    fn touch(stack: &Stack, bytes: usize) {
        for offset in (1..=bytes).step_by(sys::page_len()) {
            let address = stack.top().get() - offset;
            sys::memory_of_tests(address);
        }
    }

    fn give_all(pool: &mut StackPool, stacks: Vec<Stack>) {
        for stack in stacks {
            pool.give(stack);
        }
    }

    #[test]
    fn last_stack_back_goes_out_first() {
        let mut pool = StackPool::new(0);
        let (first, second) = (pool.take(None).unwrap(), pool.take(None).unwrap());
        assert_ne!(first.low(), second.low());
        let low = first.low();
        pool.give(second);
        pool.give(first);
        assert_eq!(pool.take(None).unwrap().low(), low);
    }

    #[test]
    fn stacks_do_not_overlap_and_have_the_size_asked_for() {
        let mut pool = StackPool::new(20_000);
        let sizes = [None, Some(100_000), None, Some(100_000), Some(1)];
        let mut stacks: Vec<_> = sizes.iter().map(|size| pool.take(*size).unwrap()).collect();
        for (stack, size) in stacks.iter().zip(sizes) {
            let usable = stack.len() - sys::page_len();
            assert!(usable >= size.unwrap_or(20_000).max(limits::STACK_BYTES_MIN));
        }
        stacks.sort_by_key(Stack::low);
        for pair in stacks.windows(2) {
            assert!(pair[0].top() <= pair[1].low());
        }
        give_all(&mut pool, stacks);
    }

    #[test]
    fn thousands_of_stacks_come_from_few_mappings() {
        let mut pool = StackPool::new(0);
        let stacks: Vec<_> = (0..5000).map(|_| pool.take(None).unwrap()).collect();
        for stack in &stacks {
            touch(stack, 1);
        }
        assert!(pool.sizes[0].slabs.len() < 16);
        give_all(&mut pool, stacks);
        assert_eq!(pool.sizes[0].free.len(), 5000);
    }

    #[test]
    fn stack_past_the_bound_gives_its_memory_back_and_reads_as_zeros() {
        let mut pool = StackPool::new(0);
        let stacks: Vec<_> = (0..=limits::STACKS_KEPT)
            .map(|_| pool.take(None).unwrap())
            .collect();
        let last = stacks.last().unwrap().top().get() - 1;
        assert_eq!(sys::memory_of_tests(last), 0);
        assert_eq!(sys::memory_of_tests(last), 1);
        give_all(&mut pool, stacks);
        assert_eq!(sys::memory_of_tests(last), 0);
    }
}
