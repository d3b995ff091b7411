//! Memory for stacks, by `mmap`: a page costs memory once it is touched.
//!
//! Owns: [`Mapping`], the range. Called by: `memory`. The invariants are there.

use crate::sys::platform;
use corosensei::stack::StackPointer;
use std::io;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The kernel has refused [`platform::GUARD`].
static NO_GUARD_ADVICE: AtomicBool = AtomicBool::new(false);

/// One stack, in memory of its pool, which outlives it.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(super) low: NonZeroUsize,
    pub(super) len: usize,
}

// SAFETY: invariant 3; a stack is at least two pages above its guard.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        self.root()
    }

    fn limit(&self) -> StackPointer {
        self.low()
    }
}

/// Bytes of a stack that its coroutine cannot use: the guard's.
pub(crate) fn guard_len() -> usize {
    page_len()
}

/// Whether an access at `address` that has faulted is an overflow of the stack.
pub(crate) fn is_overflow(low: usize, _len: usize, address: usize) -> bool {
    (low..low + page_len()).contains(&address)
}

/// Bytes in a page.
pub(crate) fn page_len() -> usize {
    static PAGE_LEN: OnceLock<usize> = OnceLock::new();
    *PAGE_LEN.get_or_init(|| {
        // SAFETY: takes a number, returns one.
        let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(len).unwrap_or(4096)
    })
}

/// Private anonymous memory, allocated by the page when first touched.
#[derive(Debug)]
pub(crate) struct Mapping {
    low: NonZeroUsize,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes, a multiple of the page.
    pub fn new(len: usize) -> io::Result<Self> {
        let flags =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | platform::MAP_STACK;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel chooses.
        let low = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        if low == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let low = NonZeroUsize::new(low.addr()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self { low, len };
        if let Some(advice) = platform::NO_HUGE_PAGES {
            // A huge page under a stack would cost 2 MiB for the first byte. Kernels without huge pages
            // refuse, which is fine.
            drop(mapping.advise(low.get(), low.get() + len, advice));
        }
        Ok(mapping)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn contains(&self, address: usize) -> bool {
        (self.low.get()..self.low.get() + self.len).contains(&address)
    }

    /// The stack of `len` bytes at offset `at`, both in whole pages.
    pub fn cut(&self, at: usize, len: usize) -> io::Result<Stack> {
        self.guard(at)?;
        Ok(Stack { low: self.low.saturating_add(at), len })
    }

    /// Frees the pages of a stack, whose bytes are lost. If the system refuses, they stay.
    #[allow(clippy::unnecessary_wraps)] // as on Windows, where it may be lost
    pub fn discard(&self, stack: Stack) -> Option<Stack> {
        let low = stack.low().get() + page_len();
        drop(self.advise(low, stack.top().get(), platform::DISCARD));
        Some(stack)
    }

    /// Makes the page at offset `at` fault on every access.
    fn guard(&self, at: usize) -> io::Result<()> {
        let low = self.low.get() + at;
        if let Some(advice) = platform::GUARD
            && !NO_GUARD_ADVICE.load(Ordering::Relaxed)
        {
            match self.advise(low, low + page_len(), advice) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    NO_GUARD_ADVICE.store(true, Ordering::Relaxed);
                }
                done => return done,
            }
        }
        self.protect(low, page_len())
    }

    fn protect(&self, low: usize, len: usize) -> io::Result<()> {
        debug_assert!(self.contains(low) && low + len <= self.low.get() + self.len);
        let address = std::ptr::with_exposed_provenance_mut(low);
        // SAFETY: invariants 1 and 2.
        if unsafe { libc::mprotect(address, len, libc::PROT_NONE) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOMEM) {
            return Err(error);
        }
        Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            "no more mappings for the guard pages of stacks: raise vm.max_map_count, or run on Linux 6.13 or \
             newer, where a guard needs none",
        ))
    }

    fn advise(&self, low: usize, top: usize, advice: libc::c_int) -> io::Result<()> {
        debug_assert!(self.contains(low) && top <= self.low.get() + self.len);
        let address = std::ptr::with_exposed_provenance_mut(low);
        // SAFETY: invariants 1 and 2.
        if unsafe { libc::madvise(address, top - low, advice) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let address = std::ptr::with_exposed_provenance_mut(self.low.get());
        // SAFETY: invariant 1.
        unsafe { libc::munmap(address, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::count_at;
    use super::*;

    #[test]
    fn invariant_1_mapping_is_zeroed_and_unmapped_by_its_drop() {
        let mapping = Mapping::new(4 * page_len()).unwrap();
        let low = mapping.low.get();
        assert_eq!(count_at(low), 0);
        assert_eq!(count_at(low + mapping.len() - 1), 0);
        assert!(mapping.contains(low) && !mapping.contains(low + mapping.len()));
        drop(mapping);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.lines().any(|line| line.starts_with(&format!("{low:x}-"))));
    }

    #[test]
    fn invariant_2_guards_and_advice_leave_other_pages_alone() {
        let mapping = Mapping::new(4 * page_len()).unwrap();
        mapping.guard(page_len()).unwrap();
        mapping.protect(mapping.low.get() + 2 * page_len(), page_len()).unwrap();
        assert_eq!(count_at(mapping.low.get() + page_len() - 1), 0);
        assert_eq!(count_at(mapping.low.get() + 3 * page_len()), 0);
        let last = mapping.low.get() + 3 * page_len();
        mapping.advise(last, last + page_len(), platform::DISCARD).unwrap();
        assert_eq!(count_at(mapping.low.get() + 3 * page_len()), 0);
    }
}
