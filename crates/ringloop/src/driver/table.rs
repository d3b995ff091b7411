//! The in-flight table: every operation between its submission and its last completion.
//!
//! Owns: the slots, the requests in them, and where each completion goes. Called by: both drivers,
//! with their borrow held; it calls nothing but wakers and makes no system call.
//!
//! ```text
//!         insert            last completion, handler or none
//!   Free ────────▶ Queued ─▶ Armed ───────────────────────────────────▶ Free
//!                    │        │ ▲ │   (Working: as Armed, with a thread)  ▲ ▲
//!                    │        ▼ │ └───────────────▶ Done ────────────────┘ │
//!                    │      Unarmed       future    ▲     taken            │
//!                    │        │  (also: paused)     │                      │
//!                    └────────┴─────▶ Settled ──────┴──────────────────────┘
//!            cancelled, or known without the kernel       delivered
//! ```
//!
//! # Invariants
//! 1. A slot never moves: slots live in chunks that are allocated once and never shrink, so that a
//!    pointer into a request stays good until its last completion.
//! 2. A key is honoured only while its generation is its slot's; a stale completion is discarded.
//! 3. A slot is freed only after the last completion, so a buffer outlives the kernel's use of it.

use super::completion::{Completion, Event, Sink, Taken, Token};
use super::results::{Kept, Results};
use crate::op::{GENERATION_MASK, Key, Need, Operation, Request, Shape};
use crate::sys::fd::RawFd;
use crate::sys::pool::PoolBuffer;
use std::task::Waker;

const CHUNK: usize = 64;
const NO_SLOT: u32 = u32::MAX;

/// State of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The slot is on the free list.
    Free,
    /// Accepted, but not submitted to the kernel yet.
    Queued,
    /// With the kernel (ring), or waiting for its descriptor (readiness).
    Armed,
    /// On a pool thread, which owns the request until it is done (readiness).
    Working,
    /// Between two completions of a multishot operation: to be re-armed; if paused, once its
    /// completions have been taken.
    Unarmed,
    /// Its last result is known to the driver and waits to be delivered: there is nothing left to
    /// cancel.
    Settled,
    /// Complete; the result waits for its future.
    Done,
}

/// Who gets an operation's completions.
#[derive(Debug)]
enum Receiver {
    Waker(Waker),
    Handler(Token),
    /// The future was dropped: results are closed or recycled.
    Nobody,
    /// The slot is free; this is the next free slot.
    Free(u32),
}

/// Flags of an operation; any of them may be set together.
pub(super) mod flag {
    /// It has been cancelled; it is not re-armed.
    pub const CANCELLED: u8 = 1;
    /// It is part of a link.
    pub const LINKED: u8 = 1 << 1;
    /// Poll-first: its descriptor is waited for before it is tried.
    pub const POLL_FIRST: u8 = 1 << 2;
    /// As many completions wait for the future as its shape allows: it is not re-armed until they
    /// are taken.
    pub const PAUSED: u8 = 1 << 3;
    /// It has been cancelled to begin again later, at least once: a result of `ECANCELED` may come
    /// from that.
    pub const WAS_STOPPED: u8 = 1 << 4;
    /// Its system call, made once per result, cannot block: the descriptor is non-blocking.
    pub const NONBLOCKING: u8 = 1 << 5;
    /// It waits in the ring driver's set of borrowed descriptors; the ring does not have it.
    pub const IN_SET: u8 = 1 << 6;
}

/// One operation, in two cache lines: a thousand connections have a thousand of them. A message of
/// a multishot operation touches only the first line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    generation: u32,
    pub phase: Phase,
    flags: u8,
    /// The request's shape, which does not change.
    shape: Shape,
    receiver: Receiver,
    /// Results for the future; the newest is the last one if the operation is `Done`.
    results: Results,
    request: Option<Request>,
}

impl Slot {
    fn empty(next_free: u32) -> Self {
        Self {
            generation: 0,
            phase: Phase::Free,
            flags: 0,
            shape: Shape::Once,
            receiver: Receiver::Free(next_free),
            results: Results::default(),
            request: None,
        }
    }

    /// True if one of these flags is set.
    #[inline]
    pub fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    #[inline]
    pub fn set(&mut self, flags: u8) {
        self.flags |= flags;
    }

    pub fn unset(&mut self, flags: u8) {
        self.flags &= !flags;
    }

    /// True if its request waits for this descriptor, or works on it.
    pub fn names(&self, fd: RawFd) -> bool {
        match self.request().map(Operation::need) {
            Some(Need::Ready(known, _)) => known == fd,
            Some(Need::Pool(fds)) => fds.contains(&fd),
            _ => false,
        }
    }

    /// How the operation continues after a completion.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Hands a completion to the waiting future. Returns true if no more may be queued, and `None`
    /// if no future waits; see [`Table::complete`].
    #[inline(always)]
    pub fn complete_for_future(
        &mut self,
        result: i32,
        more: bool,
        buffer: &mut Option<PoolBuffer>,
    ) -> Option<bool> {
        if !matches!(self.receiver, Receiver::Waker(_)) {
            return None;
        }
        let result = self.finish(result);
        let is_full = self.keep(Kept::new(result, buffer.take()), more);
        self.wake(more);
        Some(is_full)
    }

    /// Lets the request post-process a result.
    #[inline]
    fn finish(&mut self, result: i32) -> i32 {
        match (&mut self.request, self.shape) {
            (Some(request), Shape::Once | Shape::Retried | Shape::Level | Shape::Edge) => {
                request.finish(result)
            }
            _ => result,
        }
    }

    /// The request; present from insertion until the last completion is taken, except while
    /// `Working`.
    pub fn request_mut(&mut self) -> Option<&mut Request> {
        self.request.as_mut()
    }

    /// True if a future takes the completions.
    pub fn is_awaited(&self) -> bool {
        matches!(self.receiver, Receiver::Waker(_))
    }

    pub fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Queues a result for the future; returns true if no more may be queued.
    #[inline(always)]
    fn keep(&mut self, kept: Kept, more: bool) -> bool {
        if !more {
            self.phase = Phase::Done;
            self.results.push(kept);
            return false;
        }
        if self.results.is_empty() {
            self.results.push(kept);
            return self.shape == Shape::Edge;
        }
        self.keep_behind(kept)
    }

    /// Like [`Slot::keep`], if others are queued.
    fn keep_behind(&mut self, kept: Kept) -> bool {
        match (self.results.newest(), kept) {
            // Readiness masks: merge them.
            (Some(Kept::Result(last)), Kept::Result(mask)) if self.shape == Shape::Edge => {
                *last |= mask;
            }
            (_, kept) => self.results.push(kept),
        }
        self.results.len() >= self.shape.untaken_max()
    }

    /// Wakes the future; without `more` for the last time.
    #[inline]
    fn wake(&mut self, more: bool) {
        if more {
            if let Receiver::Waker(waker) = &self.receiver {
                waker.wake_by_ref();
            }
        } else if let Receiver::Waker(waker) =
            std::mem::replace(&mut self.receiver, Receiver::Nobody)
        {
            waker.wake();
        }
    }

    /// Sets the waker, or replaces another future's.
    #[inline(never)]
    fn set_waker(&mut self, waker: &Waker) {
        self.receiver = Receiver::Waker(waker.clone());
    }

    /// The next result for the future.
    #[inline]
    fn take_kept(&mut self) -> Option<Taken> {
        let (result, buffer) = self.results.pop()?.into_parts();
        Some(Taken { result, more: self.phase != Phase::Done || !self.results.is_empty(), buffer })
    }

    /// Puts the slot, whose request and results have been taken, on the free list before
    /// `next_free`.
    #[inline]
    fn free(&mut self, next_free: u32) {
        self.phase = Phase::Free;
        self.generation = (self.generation + 1) & GENERATION_MASK;
        self.receiver = Receiver::Free(next_free);
    }

    /// Takes the request out for a pool thread.
    pub fn take_request(&mut self) -> Option<Request> {
        self.request.take()
    }

    /// Puts the request back.
    pub fn restore_request(&mut self, request: Request) {
        self.request = Some(request);
    }
}

/// No result for the future yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// One will come.
    Armed,
    /// One will come once the driver resumes the operation.
    Paused,
}

/// A future has a completion, and no more may be queued: the operation is to be paused.
#[derive(Debug)]
pub(super) struct Full;

/// All operations in flight.
#[derive(Debug)]
pub(super) struct Table {
    chunks: Vec<Box<[Slot; CHUNK]>>,
    free_head: u32,
    live_count: usize,
}

impl Table {
    pub fn new() -> Self {
        Self { chunks: Vec::new(), free_head: NO_SLOT, live_count: 0 }
    }

    /// Operations that have not been freed.
    pub fn len(&self) -> usize {
        self.live_count
    }

    #[inline(always)]
    pub fn insert(&mut self, request: Request, sink: Sink, flags: u8) -> (Key, &mut Slot) {
        if self.free_head == NO_SLOT {
            self.grow();
        }
        let index = self.free_head;
        let slot = &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK];
        let Receiver::Free(next_free) = slot.receiver else {
            unreachable!("a slot of the free list is free");
        };
        self.free_head = next_free;
        self.live_count += 1;
        slot.phase = Phase::Queued;
        slot.flags = flags;
        slot.shape = request.shape();
        slot.request = Some(request);
        slot.receiver = match sink {
            Sink::Waker(waker) => Receiver::Waker(waker),
            Sink::Handler(token) => Receiver::Handler(token),
        };
        let key = Key { index, generation: slot.generation };
        (key, slot)
    }

    /// The slot that a key names, if the key is not stale (invariant 2).
    #[inline]
    pub fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        find(&mut self.chunks, key)
    }

    /// True if an operation is in this phase.
    pub fn is_in(&mut self, key: Key, phase: Phase) -> bool {
        self.slot(key).is_some_and(|slot| slot.phase == phase)
    }

    /// Delivers a completion to its receiver; returns it if that is the embedder. Without `more` it
    /// is the operation's last.
    pub fn complete(
        &mut self,
        key: Key,
        result: i32,
        more: bool,
        mut buffer: Option<PoolBuffer>,
    ) -> Result<Option<Event>, Full> {
        let Some(slot) = self.slot(key) else {
            return Ok(None);
        };
        if let Some(is_full) = slot.complete_for_future(result, more, &mut buffer) {
            return if is_full { Err(Full) } else { Ok(None) };
        }
        let result = slot.finish(result);
        match &slot.receiver {
            Receiver::Handler(token) => {
                let token = *token;
                let request = if more { None } else { slot.request.take() };
                if !more {
                    self.free(key);
                }
                let completion = Completion { result, more, buffer, request };
                Ok(Some(Event { token, key, completion }))
            }
            Receiver::Waker(_) | Receiver::Nobody | Receiver::Free(_) => {
                if let Some(request) = &mut slot.request {
                    request.discard(result);
                }
                if !more {
                    self.free(key);
                }
                Ok(None)
            }
        }
    }

    /// Takes the next result of a future's operation; with the last one also what `end` makes of
    /// its request. `None` if the key is stale. If there is no result, reports whether the
    /// operation is paused and can go on now.
    #[inline(always)]
    pub fn poll<R>(
        &mut self,
        key: Key,
        waker: &Waker,
        end: impl FnOnce(Option<Request>) -> R,
    ) -> Result<Option<(Taken, Option<R>)>, Wait> {
        let free_head = self.free_head;
        let Some(slot) = self.slot(key) else {
            return Ok(None);
        };
        if let Some(taken) = slot.take_kept() {
            if taken.more {
                return Ok(Some((taken, None)));
            }
            let ended = end(slot.request.take());
            slot.free(free_head);
            self.free_head = key.index;
            self.live_count -= 1;
            return Ok(Some((taken, Some(ended))));
        }
        if !matches!(&slot.receiver, Receiver::Waker(known) if known.will_wake(waker)) {
            slot.set_waker(waker);
        }
        Err(if slot.is(flag::PAUSED) { Wait::Paused } else { Wait::Armed })
    }

    /// The future was dropped: closes results that have arrived. The slot stays until the last
    /// completion, unless it is `Done`.
    pub fn orphan(&mut self, key: Key) {
        let Some(slot) = self.slot(key) else {
            return;
        };
        slot.receiver = Receiver::Nobody;
        while let Some(kept) = slot.results.pop() {
            if let Some(request) = &mut slot.request {
                request.discard(kept.into_parts().0);
            }
        }
        if slot.phase == Phase::Done {
            self.free(key);
        }
    }

    /// Moves the bytes that futures have not taken out of the buffers that `is_wanted` names, for
    /// others to receive into: at most [`Shape::untaken_max`] buffers an operation, and what the
    /// kernel receives before it is stopped. Bytes for which there is no memory stay where they are.
    #[cold]
    pub fn move_untaken(&mut self, is_wanted: impl Fn(&PoolBuffer) -> bool) {
        for slot in self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut()) {
            let buffers = slot.results.buffers_mut();
            let mut buffers: Vec<_> = buffers.filter(|buffer| is_wanted(buffer)).collect();
            if !buffers.is_empty() && PoolBuffer::move_out(&mut buffers).is_err() {
                return;
            }
        }
    }

    /// True if a future waits for one of these.
    pub fn is_any_awaited<'a>(&mut self, keys: impl IntoIterator<Item = &'a Key>) -> bool {
        keys.into_iter().any(|key| self.slot(*key).is_some_and(|slot| slot.is_awaited()))
    }

    /// Every operation that is not free.
    fn live(&self) -> impl Iterator<Item = (Key, &Slot)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        slots.enumerate().filter(|(_, slot)| slot.phase != Phase::Free).map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation };
            (key, slot)
        })
    }

    /// The operations that the ring has.
    pub fn on_ring(&self) -> impl Iterator<Item = (Key, &Slot)> {
        self.live().filter(|(_, slot)| slot.phase == Phase::Armed && !slot.is(flag::IN_SET))
    }

    /// The keys of all operations, for a driver that closes.
    pub fn keys(&self) -> Vec<Key> {
        self.live().map(|(key, _)| key).collect()
    }

    /// The operations that can be cancelled, and have not been.
    pub fn cancellable(&self) -> impl Iterator<Item = (Key, &Slot)> {
        self.live().filter(|(_, slot)| {
            let is_over = matches!(slot.phase, Phase::Settled | Phase::Done);
            !is_over && !slot.is(flag::CANCELLED)
        })
    }

    /// The cancellable operations that wait for a descriptor.
    pub fn cancellable_on(&self, fd: RawFd) -> Vec<Key> {
        let cancellable = self.cancellable();
        cancellable.filter_map(|(key, slot)| slot.names(fd).then_some(key)).collect()
    }

    /// True if the kernel may still access memory of any operation.
    pub fn exposes_memory(&self) -> bool {
        let mut requests = self.live().filter_map(|(_, slot)| slot.request());
        requests.any(Request::exposes_memory)
    }

    /// Leaks the slots' contents: the kernel may still write to them.
    pub fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.chunks));
        self.free_head = NO_SLOT;
        self.live_count = 0;
    }

    fn free(&mut self, key: Key) {
        let free_head = self.free_head;
        let slot = self.at(key.index);
        while slot.results.pop().is_some() {}
        let left_over = slot.request.take();
        slot.free(free_head);
        self.free_head = key.index;
        self.live_count -= 1;
        // Dropped last: releasing a buffer may run arbitrary code.
        drop(left_over);
    }

    #[inline]
    fn at(&mut self, index: u32) -> &mut Slot {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK) as u32;
        let last = first + CHUNK as u32 - 1;
        let slots: Box<[Slot]> = (first..=last)
            .map(|index| Slot::empty(if index == last { NO_SLOT } else { index + 1 }))
            .collect();
        let Ok(chunk) = slots.try_into() else {
            unreachable!("a chunk is so many slots");
        };
        self.chunks.push(chunk);
        self.free_head = first;
    }
}

#[inline(always)]
fn find(chunks: &mut [Box<[Slot; CHUNK]>], key: Key) -> Option<&mut Slot> {
    let chunk = chunks.get_mut(key.index as usize / CHUNK)?;
    let slot = &mut chunk[key.index as usize % CHUNK];
    (slot.generation == key.generation && slot.phase != Phase::Free).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Nop;

    fn insert(table: &mut Table) -> Key {
        table.insert(Request::Nop(Nop), Sink::Handler(Token(7)), 0).0
    }

    #[test]
    fn invariant_1_slots_do_not_move_when_the_table_grows() {
        let mut table = Table::new();
        let key = insert(&mut table);
        let before = std::ptr::from_mut(table.slot(key).expect("live"));
        for _ in 0..10 * CHUNK {
            insert(&mut table);
        }
        assert_eq!(before, std::ptr::from_mut(table.slot(key).expect("live")));
    }

    #[test]
    fn slot_is_two_lines_and_a_message_touches_the_first() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (128, 64));
        assert!(std::mem::offset_of!(Slot, request) <= 64);
    }

    #[test]
    fn invariant_2_stale_completion_is_discarded() {
        let mut table = Table::new();
        let old = insert(&mut table);
        assert!(matches!(table.complete(old, 0, false, None), Ok(Some(_))));
        let new = insert(&mut table);
        assert_eq!(new.index, old.index);
        assert!(matches!(table.complete(old, 5, false, None), Ok(None)));
        assert!(table.slot(new).is_some());
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn invariant_3_orphan_keeps_its_slot_until_the_last_completion() {
        let mut table = Table::new();
        let key = insert(&mut table);
        table.orphan(key);
        assert_eq!(table.len(), 1);
        assert!(matches!(table.complete(key, 1, true, None), Ok(None)));
        assert_eq!(table.len(), 1);
        assert!(matches!(table.complete(key, 0, false, None), Ok(None)));
        assert_eq!(table.len(), 0);
    }
}
