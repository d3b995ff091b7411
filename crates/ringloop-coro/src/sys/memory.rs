//! Memory for stacks.
//!
//! Owns: [`Mapping`]. Called by: `stack`, and `fault` for the stack of its handler.
//!
//! # Invariants
//! 1. A mapping's range is its own from `mmap` to its drop, and is not used after that: its stacks
//!    are back in their pool, or the pool is leaked (`scheduler/shutdown`).
//! 2. Advice and protection are for whole pages of the mapping.

use super::platform;
use std::io;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The kernel has refused [`platform::GUARD`].
static NO_GUARD_ADVICE: AtomicBool = AtomicBool::new(false);

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

    pub fn low(&self) -> NonZeroUsize {
        self.low
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn contains(&self, address: usize) -> bool {
        (self.low.get()..self.low.get() + self.len).contains(&address)
    }

    /// Makes the page at offset `at` fault on every access.
    pub fn guard(&self, at: usize) -> io::Result<()> {
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

    /// Frees the pages from `low` to `top`, whose bytes are lost.
    pub fn discard(&self, low: usize, top: usize) -> io::Result<()> {
        self.advise(low, top, platform::DISCARD)
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
    fn invariant_1_mapping_is_zeroed_and_unmapped_by_its_drop() {
        let mapping = Mapping::new(4 * page_len()).unwrap();
        let low = mapping.low().get();
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
        mapping.protect(mapping.low().get() + 2 * page_len(), page_len()).unwrap();
        assert_eq!(count_at(mapping.low().get() + page_len() - 1), 0);
        assert_eq!(count_at(mapping.low().get() + 3 * page_len()), 0);
        mapping
            .discard(mapping.low().get() + 3 * page_len(), mapping.low().get() + 4 * page_len())
            .unwrap();
        assert_eq!(count_at(mapping.low().get() + 3 * page_len()), 0);
    }
}
