//! Locations of the indices, entries and completions of the two queues.
//!
//! Called by: [`super::Ring`], which documents their invariants (R1 to R8). Makes no system call.

use super::super::abi::{self, Cqe, Params, Sqe};
use crate::sys::memory::Mapping;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(super) struct Submission {
    pub head: Word,
    pub tail: Word,
    pub flags: Word,
    pub entries: NonNull<Sqe>,
    pub mask: u32,
    /// Our copy of `tail`.
    pub next: u32,
}

#[derive(Debug)]
pub(super) struct Completion {
    pub head: Word,
    pub tail: Word,
    pub entries: NonNull<Cqe>,
    pub mask: u32,
    /// Our copy of `head`.
    pub next: u32,
}

/// A `u32` shared with the kernel.
#[derive(Debug)]
pub(super) struct Word(NonNull<AtomicU32>);

impl Word {
    pub fn load(&self) -> u32 {
        // SAFETY: R1.
        unsafe { self.0.as_ref() }.load(Ordering::Acquire)
    }

    pub fn store(&self, value: u32) {
        // SAFETY: R1.
        unsafe { self.0.as_ref() }.store(value, Ordering::Release);
    }
}

impl Submission {
    /// Reads an entry that was written and not overwritten since.
    pub fn read(&self, index: u32) -> Sqe {
        // SAFETY: R1: the masked index is below the number of entries.
        let entry = unsafe { self.entries.add((index & self.mask) as usize) };
        // SAFETY: R1; entries are never uninitialised, as fresh mappings are zeros.
        unsafe { entry.read() }
    }

    /// Overwrites it; only without a polling thread.
    pub fn rewrite(&mut self, index: u32, sqe: Sqe) {
        // SAFETY: R1: the masked index is below the number of entries.
        let entry = unsafe { self.entries.add((index & self.mask) as usize) };
        // SAFETY: R1, R8.
        unsafe { entry.write(sqe) };
    }

    /// Writes the next entry, for which there is room; the kernel does not see it before the tail
    /// moves.
    pub fn write(&mut self, sqe: Sqe) {
        *self.entry() = sqe;
        self.next = self.next.wrapping_add(1);
    }

    /// The next entry, zeroed, of a queue that is not full.
    #[inline]
    pub fn entry(&mut self) -> &mut Sqe {
        let slot = (self.next & self.mask) as usize;
        // SAFETY: R1: the masked index is below the number of entries.
        let mut entry = unsafe { self.entries.add(slot) };
        // SAFETY: R1, R2: the queue is not full, so this slot is not the kernel's.
        unsafe { entry.write(Sqe::default()) };
        // SAFETY: R1, R2, as above; it was written just now.
        unsafe { entry.as_mut() }
    }

    pub fn locate(queues: &Mapping, entries: &Mapping, params: &Params) -> Option<Self> {
        let word = |offset: u32| queues.locate(offset as usize).map(Word);
        let off = &params.sq_off;
        let count = params.sq_entries;
        let last = (count as usize).checked_sub(1)? * size_of::<Sqe>();
        entries.locate::<Sqe>(last)?;
        if params.flags & abi::IORING_SETUP_NO_SQARRAY == 0 {
            for index in 0..count {
                word(off.array + index * size_of::<u32>() as u32)?.store(index);
            }
        }
        let tail = word(off.tail)?;
        Some(Self {
            head: word(off.head)?,
            next: tail.load(),
            tail,
            flags: word(off.flags)?,
            entries: entries.locate(0)?,
            mask: count.is_power_of_two().then_some(count - 1)?,
        })
    }
}

impl Completion {
    pub fn locate(queues: &Mapping, params: &Params) -> Option<Self> {
        let word = |offset: u32| queues.locate(offset as usize).map(Word);
        let off = &params.cq_off;
        let count = params.cq_entries;
        let last = (count as usize).checked_sub(1)? * size_of::<Cqe>();
        queues.locate::<Cqe>(off.cqes as usize + last)?;
        let head = word(off.head)?;
        Some(Self {
            next: head.load(),
            head,
            tail: word(off.tail)?,
            entries: queues.locate(off.cqes as usize)?,
            mask: count.is_power_of_two().then_some(count - 1)?,
        })
    }
}

/// Both queues are in one mapping; which of them ends later depends on the sizes.
pub(super) fn queues_len(params: &Params) -> usize {
    let completions = params.cq_entries as usize * size_of::<Cqe>();
    let indices = match params.flags & abi::IORING_SETUP_NO_SQARRAY {
        0 => params.sq_off.array as usize + params.sq_entries as usize * size_of::<u32>(),
        _ => 0,
    };
    (params.cq_off.cqes as usize + completions).max(indices)
}
