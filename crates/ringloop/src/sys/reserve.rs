//! An allocator with a reserve for when the system's fails.
//!
//! Owns: [`Reserved`], the global allocator of the Python extension, and the reserve, which is
//! mapped with the library and touched only once malloc has failed. Called by: the compiler's
//! runtime; [`is_low`] before a loop starts something new. Does not serve allocations above
//! [`SLOT_LEN_MAX`]: those are made fallibly (`try_reserve`).
//!
//! Rust aborts the process when an infallible allocation fails, and most libraries make only those. A
//! process at its limit frees and allocates all the time, so what is missing is small and brief: a loop
//! runs on from the reserve until its callbacks have got their `MemoryError`s. Slots return to the
//! reserve when they are freed, or grown once malloc has memory again
//! ([decision 21](../../../../docs/decisions/0021-a-reserve-of-memory.md)).
//!
//! # Invariants
//! 1. A slot has one owner at a time: taking it sets its bit, and freeing it clears the bit.
//! 2. A block is the reserve's exactly if it is inside `MEMORY`; such a block never reaches the
//!    inner allocator, and no other one reaches the bits.
//! 3. A slot is as long and as aligned as the allocation it serves, and a block that moves keeps
//!    its bytes.
//! 4. There is no lock: a forked child can allocate at any point, and a signal handler can free.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Slots of one length, in words of bits.
struct Class {
    slot_len: usize,
    /// Offset of its first slot.
    start: usize,
    /// One bit per slot: 1 is taken.
    first_word: usize,
    word_count: usize,
    slot_count: usize,
}

const KIB: usize = 1024;

/// Sized for what the loop and QUIC allocate: messages, timers, streams; parts of a connection;
/// tables of some hundred entries; growing buffers; the libraries' tables.
const CLASSES: [Class; 5] = [
    Class::new(256, 64, 0, 0),
    Class::new(2 * KIB, 16, KIB * KIB, 64),
    Class::new(16 * KIB, 2, 3 * KIB * KIB, 80),
    Class::new(32 * KIB, 1, 5 * KIB * KIB, 82),
    Class::new(SLOT_LEN_MAX, 1, LONGEST_START, 83),
];

/// The longest allocation that the reserve serves.
pub const SLOT_LEN_MAX: usize = 128 * KIB;
/// Slots of that length, fewer than a word has bits: the other bits are always set.
const LONGEST_COUNT: usize = 32;
const LONGEST_START: usize = 7 * KIB * KIB;
const WORD_COUNT: usize = 84;
const MEMORY_LEN: usize = LONGEST_START + SLOT_LEN_MAX * LONGEST_COUNT;
/// Slots are aligned to their length, up to this.
const ALIGN_MAX: usize = align_of::<Memory>();

// An object file of Windows has no larger alignment than the first.
#[cfg_attr(windows, repr(align(8192)))]
#[cfg_attr(not(windows), repr(align(16384)))]
struct Memory(UnsafeCell<[u8; MEMORY_LEN]>);

// SAFETY: invariant 1; its bytes are touched only by the owners of its slots.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; MEMORY_LEN]));
static BITS: [AtomicU64; WORD_COUNT] = {
    let mut bits = [const { AtomicU64::new(0) }; WORD_COUNT];
    bits[WORD_COUNT - 1] = AtomicU64::new(NEVER_FREE);
    bits
};
const NEVER_FREE: u64 = !0 << LONGEST_COUNT;
/// Bytes in taken slots.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with the reserve behind it, for `#[global_allocator]`. All instances in a
/// process share one reserve.
///
/// Costs a comparison per free while there is memory.
#[derive(Debug, Default, Clone, Copy)]
pub struct Reserved<A = System>(A);

impl Reserved {
    /// Wraps the system's allocator.
    pub const fn new() -> Self {
        Self(System)
    }
}

impl Class {
    const fn new(slot_len: usize, word_count: usize, start: usize, first_word: usize) -> Self {
        Self {
            slot_len,
            start,
            first_word,
            word_count,
            slot_count: if slot_len == SLOT_LEN_MAX {
                LONGEST_COUNT
            } else {
                word_count * u64::BITS as usize
            },
        }
    }

    /// Takes a slot; returns its offset.
    fn take(&self) -> Option<usize> {
        let words = &BITS[self.first_word..self.first_word + self.word_count];
        for (index, word) in words.iter().enumerate() {
            let mut taken = word.load(Ordering::Relaxed);
            while taken != u64::MAX {
                let bit = (!taken).trailing_zeros();
                let with = taken | 1 << bit;
                // Acquire: pairs with the release of the slot's last owner.
                match word.compare_exchange(taken, with, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        TAKEN.fetch_add(self.slot_len, Ordering::Relaxed);
                        return Some(self.start + (index * 64 + bit as usize) * self.slot_len);
                    }
                    Err(changed) => taken = changed,
                }
            }
        }
        None
    }

    #[cold]
    fn is_low(&self) -> bool {
        let words = &BITS[self.first_word..self.first_word + self.word_count];
        let free_count: u32 =
            words.iter().map(|word| word.load(Ordering::Relaxed).count_zeros()).sum();
        (free_count as usize) < self.slot_count / 2
    }

    fn give_back(&self, place: usize) {
        let slot = (place - self.start) / self.slot_len;
        let word = &BITS[self.first_word + slot / 64];
        TAKEN.fetch_sub(self.slot_len, Ordering::Relaxed);
        word.fetch_and(!(1 << (slot % 64)), Ordering::Release);
    }
}

/// Offset of an address in the reserve; `None` for the system's.
#[inline(always)]
fn place(address: *mut u8) -> Option<usize> {
    let place = (address as usize).wrapping_sub(MEMORY.0.get() as usize);
    (place < MEMORY_LEN).then_some(place)
}

fn class_of(place: usize) -> &'static Class {
    let later = CLASSES.iter().rposition(|class| place >= class.start);
    &CLASSES[later.unwrap_or(0)]
}

/// Allocates from the reserve; null if it is exhausted too.
#[cold]
fn take(layout: Layout) -> *mut u8 {
    if layout.align() > ALIGN_MAX {
        return ptr::null_mut();
    }
    let len = layout.size().max(layout.align());
    let mut fitting = CLASSES.iter().filter(|class| class.slot_len >= len);
    match fitting.find_map(Class::take) {
        Some(place) => MEMORY.0.get().cast::<u8>().wrapping_add(place),
        None => ptr::null_mut(),
    }
}

impl<A: GlobalAlloc> Reserved<A> {
    /// Moves a block to another length, keeping its bytes; null leaves `old` unchanged.
    ///
    /// # Safety
    /// `old` is a block of this allocator with this layout, and `len` is not 0.
    #[cold]
    unsafe fn moved(&self, old: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        let room = place(old).map_or(layout.size(), |place| class_of(place).slot_len);
        let Ok(wanted) = Layout::from_size_align(len, layout.align()) else {
            return ptr::null_mut();
        };
        // SAFETY: the length is not 0.
        let mut new = unsafe { self.0.alloc(wanted) };
        if new.is_null() {
            // It may stay where it is: blocks are freed by their address.
            if len <= room {
                return old;
            }
            new = take(wanted);
        }
        if !new.is_null() {
            // SAFETY: both are that long (3), and no block is another one (1).
            unsafe { ptr::copy_nonoverlapping(old, new, layout.size().min(len)) };
            // SAFETY: it is the caller's block, with this layout.
            unsafe { self.dealloc(old, layout) };
        }
        new
    }
}

// SAFETY: the inner allocator's blocks are its own; those of the reserve have one owner (1), are
// told apart when freed (2), and are long and aligned enough (3).
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reserved<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { self.0.alloc(layout) };
        if block.is_null() { take(layout) } else { block }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        if !block.is_null() {
            return block;
        }
        let block = take(layout);
        if !block.is_null() {
            // SAFETY: invariant 3.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match place(block) {
            // SAFETY: invariant 2.
            None => unsafe { self.0.dealloc(block, layout) },
            Some(place) => class_of(place).give_back(place),
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        if place(block).is_none() {
            // SAFETY: invariant 2.
            let grown = unsafe { self.0.realloc(block, layout, len) };
            if !grown.is_null() {
                return grown;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.moved(block, layout, len) }
    }
}

/// True if more than half of the slots of a length are taken and malloc cannot replace the reserve
/// yet: what is left is for work in progress, and nothing new should begin.
#[inline]
pub fn is_low() -> bool {
    TAKEN.load(Ordering::Relaxed) > 0 && CLASSES.iter().any(Class::is_low) && !has_memory(&System)
}

/// Allocates and frees as much as the whole reserve: long-lived slots in the reserve prove nothing,
/// and another thread may take a smaller amount before it is used.
#[cold]
fn has_memory(allocator: &impl GlobalAlloc) -> bool {
    let Ok(layout) = Layout::from_size_align(MEMORY_LEN, 1) else {
        return false;
    };
    // SAFETY: the length is not 0.
    let block = unsafe { allocator.alloc(layout) };
    if !block.is_null() {
        // SAFETY: it was allocated with this layout.
        unsafe { allocator.dealloc(block, layout) };
    }
    !block.is_null()
}

/// True if a block is the reserve's: caches then give it back.
pub fn holds(block: *const u8) -> bool {
    place(block.cast_mut()).is_some()
}

#[cfg(test)]
mod tests;
