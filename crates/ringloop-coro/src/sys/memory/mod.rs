//! Memory for stacks.
//!
//! Owns: the choice of platform, at compile time: [`Mapping`], and [`Stack`], which is cut from it.
//! Called by: `stack`, whose pool they are in.
//!
//! # Invariants
//! 1. A mapping's range is its own from its creation to its drop, and is not used after that: its
//!    stacks are back in their pool, or the pool is leaked (`scheduler/shutdown`).
//! 2. Advice, protection and commits are for whole pages of the mapping.
//! 3. A stack lies in one mapping, apart from other stacks, has a guard at its low end, and one user
//!    until it is put back.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
use windows as platform;

use crate::limits;
use corosensei::stack::StackPointer;
use std::num::NonZeroUsize;

pub(crate) use platform::{Mapping, Stack, guard_len, is_overflow, page_len};

impl Stack {
    /// The lowest address: the guard's.
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

    /// Where its first frame begins: below the top by a distance that varies between stacks, so that
    /// the roots of many stacks do not compete for the same few sets of a cache.
    fn root(&self) -> StackPointer {
        let index = self.low.get() / self.len;
        let below = index % limits::STACK_COLOURS * limits::STACK_COLOUR_BYTES;
        self.low.saturating_add(self.len - below)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Increments the byte at an address of a mapping; returns its former value.
    pub(crate) fn count_at(address: usize) -> u8 {
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the tests pass bytes of mappings that they hold, outside of guards.
        let before = unsafe { byte.read() };
        // SAFETY: as above.
        unsafe { byte.write(before + 1) };
        before
    }

    #[test]
    fn invariant_3_stacks_of_a_mapping_lie_apart_and_lose_their_pages_alone() {
        let len = guard_len() + 4 * page_len();
        let mapping = Mapping::new(2 * len).unwrap();
        let (low, high) = (mapping.cut(0, len).unwrap(), mapping.cut(len, len).unwrap());
        assert!(low.top() <= high.low() && mapping.contains(high.top().get() - 1));
        let (of_low, of_high) = (low.top().get() - 1, high.top().get() - 1);
        assert_eq!((count_at(of_low), count_at(of_high)), (0, 0));
        let low = mapping.discard(low).unwrap();
        assert_eq!((low.len(), count_at(of_low), count_at(of_high)), (len, 0, 1));
    }

    #[test]
    fn an_overflow_is_an_access_at_the_low_end_of_a_stack() {
        let len = guard_len() + 4 * page_len();
        assert!(is_overflow(1 << 20, len, 1 << 20));
        assert!(!is_overflow(1 << 20, len, (1 << 20) - 1));
        assert!(!is_overflow(1 << 20, len, (1 << 20) + len));
    }
}
