//! On an allocator that refuses every request, or only when told to.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{ptr, slice, thread};

use super::{
    ALIGN_MAX, BITS, CLASSES, LONGEST_COUNT, MEMORY_LEN, NEVER_FREE, Reserved, SLOT_LEN_MAX,
    System, TAKEN, has_memory, is_low, place,
};

/// The system's allocator, unless it is told to refuse.
#[derive(Default)]
struct Moody {
    refuses: AtomicBool,
}

// SAFETY: the system's, or null.
unsafe impl GlobalAlloc for Moody {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.refuses.load(Ordering::Relaxed) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        assert!(place(block).is_none(), "a slot of the reserve's");
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

/// The reserve is process-global, so tests use it one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refusing(refuses: bool) -> Reserved<Moody> {
    let allocator = Reserved(Moody::default());
    allocator.0.refuses.store(refuses, Ordering::Relaxed);
    allocator
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, 8).expect("a small one")
}

fn alloc(allocator: &Reserved<Moody>, len: usize) -> *mut u8 {
    // SAFETY: no length here is 0.
    unsafe { allocator.alloc(layout(len)) }
}

fn free(allocator: &Reserved<Moody>, block: *mut u8, len: usize) {
    // SAFETY: it was allocated by `alloc` with this layout.
    unsafe { allocator.dealloc(block, layout(len)) }
}

fn resize(allocator: &Reserved<Moody>, block: *mut u8, from: usize, to: usize) -> *mut u8 {
    // SAFETY: it was allocated by `alloc` with this layout.
    unsafe { allocator.realloc(block, layout(from), to) }
}

fn write(block: *mut u8, len: usize, byte: u8) {
    // SAFETY: a block of that length, owned by this test.
    unsafe { block.write_bytes(byte, len) }
}

fn read(block: *mut u8, len: usize) -> Vec<u8> {
    // SAFETY: a block of that length that was written.
    unsafe { slice::from_raw_parts(block, len) }.to_vec()
}

fn assert_untouched() {
    assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    let (longest, others) = BITS.split_last().expect("some");
    assert_eq!(longest.load(Ordering::Relaxed), NEVER_FREE);
    assert!(others.iter().all(|word| word.load(Ordering::Relaxed) == 0));
}

#[test]
fn class_is_low_once_more_than_half_of_its_slots_are_taken() {
    let _alone = alone();
    let allocator = refusing(true);
    let [small, others @ ..] = &CLASSES;
    let half = small.slot_count / 2;
    let mut blocks: Vec<_> = (0..half).map(|_| alloc(&allocator, 200)).collect();
    assert!(!small.is_low());
    blocks.push(alloc(&allocator, 200));
    assert!(small.is_low());
    assert!(!others.iter().any(super::Class::is_low));
    for block in blocks {
        free(&allocator, block, 200);
    }
    assert!(!small.is_low());
    assert_untouched();
}

#[test]
fn invariant_1_a_slot_has_one_owner_at_a_time() {
    let _alone = alone();
    let allocator = refusing(true);
    let mut blocks = Vec::new();
    let mut places = HashSet::new();
    loop {
        let block = alloc(&allocator, 200);
        if block.is_null() {
            break;
        }
        assert!(places.insert(block as usize), "handed out twice");
        write(block, 200, blocks.len() as u8);
        blocks.push(block);
    }
    // Small ones take the longer slots too, down to the last.
    assert_eq!(blocks.len(), (BITS.len() - 1) * 64 + LONGEST_COUNT);
    assert_eq!(TAKEN.load(Ordering::Relaxed), MEMORY_LEN);
    // malloc still works in this process.
    assert!(!is_low());
    assert!(!has_memory(&allocator.0));
    for (number, block) in blocks.iter().enumerate() {
        assert_eq!(read(*block, 200), [number as u8; 200]);
        free(&allocator, *block, 200);
    }
    assert!(!is_low());
    assert_untouched();
}

#[test]
fn invariant_1_threads_never_share_a_slot() {
    let _alone = alone();
    let allocator = refusing(true);
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let allocator = &allocator;
            scope.spawn(move || {
                for round in 0..2000 {
                    let len = [100, 1500, 9000][round % 3];
                    let blocks: Vec<_> = (0..5).map(|_| alloc(allocator, len)).collect();
                    for block in blocks.iter().filter(|block| !block.is_null()) {
                        write(*block, len, thread);
                    }
                    for block in blocks.into_iter().filter(|block| !block.is_null()) {
                        assert!(read(block, len).iter().all(|byte| *byte == thread));
                        free(allocator, block, len);
                    }
                }
            });
        }
    });
    assert_untouched();
}

#[test]
fn invariant_2_each_block_goes_back_to_where_it_is_from() {
    let _alone = alone();
    let allocator = refusing(false);
    let system = alloc(&allocator, 100);
    assert!(place(system).is_none());
    allocator.0.refuses.store(true, Ordering::Relaxed);
    let reserved = alloc(&allocator, 100);
    assert!(place(reserved).is_some());
    // `Moody` checks what it frees.
    free(&allocator, system, 100);
    allocator.0.refuses.store(false, Ordering::Relaxed);
    free(&allocator, reserved, 100);
    assert_untouched();
}

#[test]
fn invariant_3_slots_are_long_and_aligned_enough() {
    let _alone = alone();
    let allocator = refusing(true);
    for class in &CLASSES {
        for align in [1, 64, 256, 4096, ALIGN_MAX] {
            let layout = Layout::from_size_align(class.slot_len, align).expect("a power of two");
            // SAFETY: no length here is 0.
            let block = unsafe { allocator.alloc_zeroed(layout) };
            assert!(!block.is_null());
            assert_eq!(block as usize % align, 0);
            assert!(read(block, class.slot_len).iter().all(|byte| *byte == 0));
            write(block, class.slot_len, 255);
            // SAFETY: it was allocated with this layout.
            unsafe { allocator.dealloc(block, layout) };
        }
    }
    assert!(alloc(&allocator, SLOT_LEN_MAX + 1).is_null());
    let layout = Layout::from_size_align(1, 2 * ALIGN_MAX).expect("a power of two");
    // SAFETY: the length is not 0.
    assert!(unsafe { allocator.alloc(layout) }.is_null());
    assert_untouched();
}

#[test]
fn invariant_3_a_block_that_moves_keeps_its_bytes() {
    let _alone = alone();
    let allocator = refusing(false);
    let mut block = alloc(&allocator, 100);
    write(block, 100, 7);
    // Into the reserve, within it, in place, and out again.
    for (refuses, from, to) in
        [(true, 100, 200), (true, 200, 3000), (true, 3000, 150), (false, 150, 400_000)]
    {
        allocator.0.refuses.store(refuses, Ordering::Relaxed);
        block = resize(&allocator, block, from, to);
        assert_eq!(place(block).is_some(), refuses);
        assert_eq!(read(block, 100), [7; 100]);
    }
    assert_untouched();
    // A block that cannot grow is unchanged; shrinking always works.
    allocator.0.refuses.store(true, Ordering::Relaxed);
    assert!(resize(&allocator, block, 400_000, 500_000).is_null());
    assert_eq!(resize(&allocator, block, 400_000, 300_000), block);
    assert_eq!(read(block, 100), [7; 100]);
    free(&allocator, block, 300_000);
    assert_untouched();
}

#[test]
fn invariant_4_a_forked_child_allocates() {
    let _alone = alone();
    let allocator = refusing(true);
    let (allocator, stop) = (&allocator, &AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    free(allocator, alloc(allocator, 100), 100);
                }
            });
        }
        for _ in 0..50 {
            assert!(crate::sys::testing::in_child(|| {
                let block = alloc(allocator, 100);
                free(allocator, block, 100);
                !block.is_null()
            }));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
