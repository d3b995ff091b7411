//! Memory for stacks, by `VirtualAlloc`: a page is committed when the stack grows into it.
//!
//! Owns: [`Mapping`], the range. Called by: `memory`. The invariants are there.
//!
//! The system grows the stack of the running thread, which it finds by four fields of the thread's
//! environment block; corosensei exchanges them at each switch. An access to the guard commits
//! another page. An access that leaves no room for the guarantee is an overflow: its exception is
//! handled on the same stack, in the guarantee.
//!
//! ```text
//!   high ┌──────────────┐ StackBase
//!        │ in use       │ committed
//!        ├──────────────┤ StackLimit
//!        │ guard        │ committed, PAGE_GUARD: moves down as the stack grows
//!        │ guarantee    │ likewise; GuaranteedStackBytes
//!        ├──────────────┤
//!        │ not yet used │ reserved
//!   low  └──────────────┘ DeallocationStack; the lowest page is never committed
//! ```

use crate::limits;
use corosensei::stack::{StackPointer, StackTebFields};
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::sync::OnceLock;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_GUARD, PAGE_READWRITE, VirtualAlloc,
    VirtualFree,
};
use windows_sys::Win32::System::SystemInformation::{GetSystemInfo, SYSTEM_INFO};

/// Pages of the guard, by which the stack grows, on 64-bit processors.
const GUARD_PAGES: usize = 2;

/// One stack, in memory of its pool, which outlives it.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(super) low: NonZeroUsize,
    pub(super) len: usize,
    /// The lowest address in use: `StackLimit`, as its last coroutine has left it.
    limit: usize,
    /// Bytes of the guarantee, likewise.
    guaranteed: usize,
}

// SAFETY: invariant 3; pages above the limit are committed, among them the highest, which has room
// for what the switch puts there from another stack.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        self.root()
    }

    fn limit(&self) -> StackPointer {
        self.low()
    }

    fn teb_fields(&self) -> StackTebFields {
        StackTebFields {
            StackBase: self.top().get(),
            StackLimit: self.limit,
            DeallocationStack: self.low.get(),
            GuaranteedStackBytes: self.guaranteed,
        }
    }

    fn update_teb_fields(&mut self, stack_limit: usize, guaranteed_stack_bytes: usize) {
        self.limit = stack_limit;
        self.guaranteed = guaranteed_stack_bytes;
    }
}

/// Bytes of a stack that its coroutine cannot use: the lowest page, the guarantee and the guard.
pub(crate) fn guard_len() -> usize {
    page_len() + moving_len()
}

/// Whether an access at `address` that has faulted is an overflow of the stack: all that faults
/// there is what the system would not commit.
pub(crate) fn is_overflow(low: usize, len: usize, address: usize) -> bool {
    (low..low + len).contains(&address)
}

/// Bytes of the guarantee and the guard.
fn moving_len() -> usize {
    limits::STACK_BYTES_GUARANTEED + GUARD_PAGES * page_len()
}

/// Bytes in a page.
pub(crate) fn page_len() -> usize {
    static PAGE_LEN: OnceLock<usize> = OnceLock::new();
    *PAGE_LEN.get_or_init(|| {
        let mut info = SYSTEM_INFO::default();
        // SAFETY: the structure is live for the call.
        unsafe { GetSystemInfo(&raw mut info) };
        info.dwPageSize as usize
    })
}

/// A range of the address space, committed by the page.
#[derive(Debug)]
pub(crate) struct Mapping {
    low: NonZeroUsize,
    len: usize,
}

impl Mapping {
    /// Reserves `len` bytes, a multiple of the page.
    pub fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new range, where the system chooses.
        let low = unsafe { VirtualAlloc(std::ptr::null(), len, MEM_RESERVE, PAGE_READWRITE) };
        let low = NonZeroUsize::new(low.addr()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { low, len })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn contains(&self, address: usize) -> bool {
        (self.low.get()..self.low.get() + self.len).contains(&address)
    }

    /// The stack of `len` bytes at offset `at`, both in whole pages, with its highest page and its
    /// guard committed.
    pub fn cut(&self, at: usize, len: usize) -> io::Result<Stack> {
        let low = self.low.saturating_add(at);
        let limit = low.get() + len - page_len();
        self.commit(limit, page_len(), PAGE_READWRITE)?;
        self.commit(limit - moving_len(), moving_len(), PAGE_READWRITE | PAGE_GUARD)?;
        Ok(Stack { low, len, limit, guaranteed: limits::STACK_BYTES_GUARANTEED })
    }

    /// Frees the pages of a stack, whose bytes are lost. `None`: the system has no memory for its
    /// guard; the range stays unused.
    pub fn discard(&self, stack: Stack) -> Option<Stack> {
        let Stack { low, len, .. } = stack;
        let low = low.get();
        // SAFETY: invariants 1 to 3: the stack's pages, which nothing uses any more.
        if unsafe { VirtualFree(pointer(low), len, MEM_DECOMMIT) } == 0 {
            return None;
        }
        self.cut(low - self.low.get(), len).ok()
    }

    fn commit(&self, low: usize, len: usize, access: u32) -> io::Result<()> {
        debug_assert!(self.contains(low) && low + len <= self.low.get() + self.len);
        // SAFETY: invariants 1 and 2.
        if unsafe { VirtualAlloc(pointer(low), len, MEM_COMMIT, access) }.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { VirtualFree(pointer(self.low.get()), 0, MEM_RELEASE) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::count_at;
    use super::*;
    use windows_sys::Win32::System::Memory::{MEM_FREE, MEMORY_BASIC_INFORMATION, VirtualQuery};

    /// State and protection of the page at an address.
    fn page_at(address: usize) -> (u32, u32) {
        let mut page = MEMORY_BASIC_INFORMATION::default();
        // SAFETY: the structure is live for the call.
        let len = unsafe { VirtualQuery(pointer(address), &raw mut page, size_of_val(&page)) };
        assert_ne!(len, 0);
        (page.State, page.Protect)
    }

    #[test]
    fn invariant_1_mapping_is_free_after_its_drop() {
        let mapping = Mapping::new(1 << 20).unwrap();
        let low = mapping.low.get();
        assert_eq!(page_at(low).0, MEM_RESERVE);
        drop(mapping);
        assert_eq!(page_at(low).0, MEM_FREE);
    }

    #[test]
    fn invariant_2_a_stack_has_its_highest_page_and_its_guard_and_loses_what_it_has_grown() {
        let (page, len) = (page_len(), guard_len() + 4 * page_len());
        let mapping = Mapping::new(2 * len).unwrap();
        let stack = mapping.cut(len, len).unwrap();
        let (low, top) = (stack.low().get(), stack.top().get());
        let guarded = (MEM_COMMIT, PAGE_READWRITE | PAGE_GUARD);
        let check = || {
            assert_eq!(page_at(top - page), (MEM_COMMIT, PAGE_READWRITE));
            assert_eq!(page_at(top - 2 * page), guarded);
            assert_eq!(page_at(top - page - moving_len()), guarded);
            assert_eq!(page_at(top - 2 * page - moving_len()).0, MEM_RESERVE);
            assert_eq!((page_at(low).0, page_at(low - page).0), (MEM_RESERVE, MEM_RESERVE));
        };
        check();
        assert_eq!(count_at(top - 1), 0);
        // As if it had grown by two pages.
        mapping.commit(top - 3 * page, 2 * page, PAGE_READWRITE).unwrap();
        assert_eq!(count_at(top - 3 * page), 0);
        let stack = mapping.discard(stack).unwrap();
        check();
        assert_eq!((stack.top().get(), count_at(top - 1)), (top, 0));
    }
}
