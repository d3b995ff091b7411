//! An allocator with a reserve for the moment in which the system's has nothing left.
//!
//! Owns: [`Reserved`], the global allocator of the Python extension, and memory mapped with the library, which is touched
//! only once malloc has failed. Called by: the compiler's runtime; [`is_low`] where a program asks a loop for something.
//! Never does: keep anything for an allocation above [`SLOT_LEN_MAX`]: those are made fallibly (`try_reserve`).
//!
//! Rust ends the process where an allocation fails that cannot say so, and most libraries have only such. A process at its
//! limit frees and takes memory all the time, so what is missing is a little, and for a moment: a loop goes on out of the
//! reserve until its callbacks have got their `MemoryError`s. What was taken comes back when it is freed, or grown while
//! malloc has memory again ([decision 21](../../../../docs/decisions/0021-a-reserve-of-memory.md)).
//!
//! # Invariants
//! 1. A slot has one owner at a time: its bit is set by whoever takes it, and cleared when it is freed.
//! 2. A block is the reserve's exactly if it lies in `MEMORY`; such a block never reaches the allocator behind it, and no
//!    other one reaches the bits.
//! 3. A slot is as long and as aligned as what it is taken for, and a block that moves keeps its bytes.
//! 4. There is no lock: a child that was forked in the middle of it can allocate, and a signal handler free.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Slots of one length, in words of bits.
struct Class {
    slot_len: usize,
    /// Of its first slot in the memory.
    start: usize,
    /// A bit each: 1 is taken.
    first_word: usize,
    word_count: usize,
    slot_count: usize,
}

const KIB: usize = 1024;

/// What the loop and QUIC allocate for a message, a timer, a stream; a connection's parts; tables of some hundred entries;
/// growing buffers; the libraries' tables.
const CLASSES: [Class; 5] = [
    Class::new(256, 64, 0, 0),
    Class::new(2 * KIB, 16, KIB * KIB, 64),
    Class::new(16 * KIB, 2, 3 * KIB * KIB, 80),
    Class::new(32 * KIB, 1, 5 * KIB * KIB, 82),
    Class::new(SLOT_LEN_MAX, 1, LONGEST_START, 83),
];

/// The longest allocation that the reserve helps with.
pub const SLOT_LEN_MAX: usize = 128 * KIB;
/// Slots of that length, fewer than a word has bits: the others are always taken.
const LONGEST_COUNT: usize = 32;
const LONGEST_START: usize = 7 * KIB * KIB;
const WORD_COUNT: usize = 84;
const MEMORY_LEN: usize = LONGEST_START + SLOT_LEN_MAX * LONGEST_COUNT;
/// Slots are as aligned as they are long, up to this.
const ALIGN_MAX: usize = 16 * KIB;

#[repr(align(16384))]
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
/// Bytes of slots that are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with the reserve behind it, for `#[global_allocator]`. All of a process's share one reserve.
///
/// Costs a comparison a free while there is memory.
#[derive(Debug, Default, Clone, Copy)]
pub struct Reserved<A = System>(A);

impl Reserved {
    /// Of the system's allocator.
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

    /// Take a slot; its place in the memory.
    fn take(&self) -> Option<usize> {
        let words = &BITS[self.first_word..self.first_word + self.word_count];
        for (index, word) in words.iter().enumerate() {
            let mut taken = word.load(Ordering::Relaxed);
            while taken != u64::MAX {
                let bit = (!taken).trailing_zeros();
                let with = taken | 1 << bit;
                // Acquire: what the last owner did with the slot lies before what the next one does.
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
        let free_count: u32 = words
            .iter()
            .map(|word| word.load(Ordering::Relaxed).count_zeros())
            .sum();
        (free_count as usize) < self.slot_count / 2
    }

    fn give_back(&self, place: usize) {
        let slot = (place - self.start) / self.slot_len;
        let word = &BITS[self.first_word + slot / 64];
        TAKEN.fetch_sub(self.slot_len, Ordering::Relaxed);
        word.fetch_and(!(1 << (slot % 64)), Ordering::Release);
    }
}

/// Where an address lies in the reserve; `None` for the system's.
#[inline(always)]
fn place(address: *mut u8) -> Option<usize> {
    let place = (address as usize).wrapping_sub(MEMORY.0.get() as usize);
    (place < MEMORY_LEN).then_some(place)
}

fn class_of(place: usize) -> &'static Class {
    let later = CLASSES.iter().rposition(|class| place >= class.start);
    &CLASSES[later.unwrap_or(0)]
}

/// Take what malloc did not have; null where the reserve has nothing either.
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
    /// A block of another length, of which the first bytes are those of `old`; null leaves `old` as it was.
    ///
    /// # Safety
    /// `old` is a block of ours of `layout`, and `len` is not 0.
    #[cold]
    unsafe fn moved(&self, old: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        let room = place(old).map_or(layout.size(), |place| class_of(place).slot_len);
        let Ok(wanted) = Layout::from_size_align(len, layout.align()) else {
            return ptr::null_mut();
        };
        // SAFETY: the length is not 0.
        let mut new = unsafe { self.0.alloc(wanted) };
        if new.is_null() {
            // It may stay where it is: both are freed by their address.
            if len <= room {
                return old;
            }
            new = take(wanted);
        }
        if !new.is_null() {
            // SAFETY: both are that long (3), and no block is another one (1).
            unsafe { ptr::copy_nonoverlapping(old, new, layout.size().min(len)) };
            // SAFETY: it is the caller's, of that layout.
            unsafe { self.dealloc(old, layout) };
        }
        new
    }
}

// SAFETY: the blocks of the allocator behind it are its own; those of the reserve have one owner (1), are told apart when they are
// freed (2), and are long and aligned enough (3).
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

/// Whether more than half of the slots of a length are in use and malloc cannot replace the reserve yet: what is left is for
/// what was begun, and nothing new should begin.
#[inline]
pub fn is_low() -> bool {
    TAKEN.load(Ordering::Relaxed) > 0 && CLASSES.iter().any(Class::is_low) && !has_memory(&System)
}

/// Ask for as much as the reserve has in all, and give it back: what stays in the reserve for long says nothing, and less
/// may be gone to another thread before it is used.
#[cold]
fn has_memory(allocator: &impl GlobalAlloc) -> bool {
    let Ok(layout) = Layout::from_size_align(MEMORY_LEN, 1) else {
        return false;
    };
    // SAFETY: the length is not 0.
    let block = unsafe { allocator.alloc(layout) };
    if !block.is_null() {
        // SAFETY: it was made so.
        unsafe { allocator.dealloc(block, layout) };
    }
    !block.is_null()
}

/// Whether a block is the reserve's: what a program could do without is given back then.
pub fn holds(block: *const u8) -> bool {
    place(block.cast_mut()).is_some()
}

#[cfg(test)]
mod tests;
