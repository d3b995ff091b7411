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
pub(crate) struct Pool {
    /// The runtime's own size first.
    sizes: Vec<Size>,
}

/// Stacks of one size.
#[derive(Debug)]
struct Size {
    /// With the guard.
    len: usize,
    /// The last one back goes out first: its memory is in cache.
    free: Vec<Stack>,
    slabs: Vec<Mapping>,
    /// Where in the last slab the next stack that was never used begins.
    unused_at: usize,
}

/// The whole of a stack for so many usable bytes.
fn len_of(bytes: usize) -> usize {
    let bytes = bytes.clamp(limits::STACK_BYTES_MIN, limits::STACK_BYTES_MAX);
    bytes.next_multiple_of(sys::page_len()) + sys::page_len()
}

impl Pool {
    /// No stacks yet; `bytes` is what a coroutine gets that does not ask for a size.
    pub fn new(bytes: usize) -> Self {
        Self {
            sizes: vec![Size::new(len_of(bytes))],
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
        self.sizes.push(Size::new(len));
        self.sizes.len() - 1
    }
}

impl Size {
    fn new(len: usize) -> Self {
        Self {
            len,
            free: Vec::new(),
            slabs: Vec::new(),
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
        Ok(Stack { low, len: self.len })
    }
}
