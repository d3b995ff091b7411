//! The in-flight table: every operation between its submission and its last completion.
//!
//! Owns: the slots, the requests in them, and who gets each completion.
//! Called by: both drivers, with their borrow held; it calls nothing but wakers.
//! Never does: a system call.
//!
//! ```text
//!         insert            last completion, handler or nobody
//!   Free ────────▶ Queued ─▶ Armed ───────────────────────────────────▶ Free
//!                    │        │ ▲ │   (Working: as Armed, with a thread)  ▲ ▲
//!                    │        ▼ │ └───────────────▶ Done ────────────────┘ │
//!                    │      Resting       future    ▲     taken            │
//!                    │        │  (also: paused)     │                      │
//!                    └────────┴─────▶ Settled ──────┴──────────────────────┘
//!            cancelled, or known without the kernel       delivered
//! ```
//!
//! # Invariants
//! 1. A slot never moves: slots live in chunks that are allocated once and never shrink, so that a
//!    pointer into a request stays good until its last completion.
//! 2. A key is honoured only while its generation is its slot's; a stale completion reaches nobody.
//! 3. A slot is freed only after the last completion, so a buffer outlives the kernel's use of it.

use super::results::{Kept, Results};
use super::{BufferId, Completion, Event, Key, Sink, Token};
use crate::op::{Need, Operation, Request, Shape};
use std::os::fd::RawFd;
use std::task::{Poll, Waker};

const CHUNK: usize = 256;
const NO_SLOT: u32 = u32::MAX;
/// Generations are 24 bits wide: they share `user_data` with the index and the kind.
pub(super) const GENERATION_MASK: u32 = (1 << 24) - 1;

/// Where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The slot is on the free list.
    Free,
    /// Accepted, but not handed to the kernel yet.
    Queued,
    /// With the kernel (ring), or waiting for its descriptor (readiness).
    Armed,
    /// With the pool threads, which own the request until they are done with it (readiness).
    Working,
    /// Between two completions of a multishot operation: it is not armed, and will be; for a paused one, once
    /// its completions are taken.
    Resting,
    /// Its last result is known to the driver, and waits for its turn to be delivered: there is
    /// nothing left to cancel.
    Settled,
    /// Complete; the result waits for its future.
    Done,
}

/// Who gets an operation's completions.
#[derive(Debug)]
enum Receiver {
    Waker(Waker),
    Handler(Token),
    /// The future was dropped: results are given back to the system.
    Nobody,
    /// The slot is free; this is the next one that is.
    Free(u32),
}

/// One operation. Kept small: a thousand connections have a thousand of them, and each message touches one.
#[derive(Debug)]
// Each is a fact of its own beside the phase, and any of them may hold together.
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Slot {
    generation: u32,
    pub phase: Phase,
    /// The operation has been asked to stop; it is not armed again.
    pub cancelled: bool,
    /// It is one of a link's.
    pub linked: bool,
    /// Its descriptor is waited for before it is tried.
    pub is_patient: bool,
    /// As many completions wait for the future as its shape allows: it is not armed again until they
    /// are taken.
    pub paused: bool,
    /// It has been stopped for a pause at least once: a result of `ECANCELED` may be of that.
    pub was_stopped: bool,
    receiver: Receiver,
    request: Option<Request>,
    /// What waits for the future; the newest is the last one where the operation is `Done`.
    results: Results,
}

impl Slot {
    fn empty(next_free: u32) -> Self {
        Self {
            generation: 0,
            phase: Phase::Free,
            cancelled: false,
            linked: false,
            is_patient: false,
            paused: false,
            was_stopped: false,
            receiver: Receiver::Free(next_free),
            request: None,
            results: Results::default(),
        }
    }

    /// The request; present from insertion until the last completion was taken, except while it is `Working`.
    pub fn request_mut(&mut self) -> Option<&mut Request> {
        self.request.as_mut()
    }

    pub fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Keep a result for the future; returns whether no more may wait.
    fn keep(&mut self, kept: Kept, more: bool) -> bool {
        if !more {
            self.phase = Phase::Done;
            self.results.push(kept);
            return false;
        }
        let shape = self.request.as_ref().map_or(Shape::Once, Operation::shape);
        match self.results.newest() {
            // Masks of readiness: what either said.
            Some(last) if shape == Shape::Edge => last.result |= kept.result,
            _ => self.results.push(kept),
        }
        self.results.len() >= shape.untaken_max()
    }

    /// Wake the future; for the last time where no more comes.
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

    /// The next result for the future.
    #[inline]
    fn take_kept(&mut self) -> Option<Completion> {
        let kept = self.results.pop()?;
        let more = self.phase != Phase::Done || !self.results.is_empty();
        Some(Completion {
            result: kept.result,
            more,
            buffer: kept.buffer,
            request: if more { None } else { self.request.take() },
        })
    }

    /// Lend the request to a pool thread.
    pub fn take_request(&mut self) -> Option<Request> {
        self.request.take()
    }

    /// Take a lent request back.
    pub fn restore_request(&mut self, request: Request) {
        self.request = Some(request);
    }
}

/// What became of a completion.
#[derive(Debug)]
pub(super) enum Delivery {
    /// It goes to the embedder.
    Event(Event),
    /// A future took it, or it reached nobody; `Some` is a buffer to give back to the pool.
    Consumed(Option<BufferId>),
    /// A future has it, and as many more as may wait: the operation is to be paused.
    Full,
}

/// All operations in flight.
#[derive(Debug)]
pub(super) struct Table {
    chunks: Vec<Box<[Slot]>>,
    free_head: u32,
    live_count: usize,
}

impl Table {
    pub fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free_head: NO_SLOT,
            live_count: 0,
        }
    }

    /// Operations that have not been freed.
    pub fn len(&self) -> usize {
        self.live_count
    }

    #[inline]
    pub fn insert(&mut self, request: Request, sink: Sink) -> Key {
        if self.free_head == NO_SLOT {
            self.grow();
        }
        let index = self.free_head;
        let slot = self.at(index);
        let Receiver::Free(next_free) = slot.receiver else {
            unreachable!("a slot of the free list is free");
        };
        slot.phase = Phase::Queued;
        slot.cancelled = false;
        slot.linked = false;
        slot.is_patient = false;
        slot.paused = false;
        slot.was_stopped = false;
        slot.request = Some(request);
        slot.receiver = match sink {
            Sink::Waker(waker) => Receiver::Waker(waker),
            Sink::Handler(token) => Receiver::Handler(token),
        };
        let key = Key {
            index,
            generation: slot.generation,
        };
        self.free_head = next_free;
        self.live_count += 1;
        key
    }

    /// The slot a key names, while it does (invariant 2).
    #[inline]
    pub fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self
            .chunks
            .get_mut(key.index as usize / CHUNK)?
            .get_mut(key.index as usize % CHUNK)?;
        (slot.generation == key.generation && slot.phase != Phase::Free).then_some(slot)
    }

    /// Hand a completion to whoever waits for it. Without `more` it is the operation's last.
    pub fn complete(
        &mut self,
        key: Key,
        result: i32,
        more: bool,
        buffer: Option<BufferId>,
    ) -> Delivery {
        let Some(slot) = self.slot(key) else {
            return Delivery::Consumed(buffer);
        };
        let result = match &mut slot.request {
            Some(request) => request.finish(result),
            None => result,
        };
        match &slot.receiver {
            Receiver::Handler(token) => {
                let token = *token;
                let request = if more { None } else { slot.request.take() };
                if !more {
                    self.free(key);
                }
                let completion = Completion {
                    result,
                    more,
                    buffer,
                    request,
                };
                Delivery::Event(Event {
                    token,
                    key,
                    completion,
                })
            }
            Receiver::Waker(_) => {
                let is_full = slot.keep(Kept { result, buffer }, more);
                slot.wake(more);
                if is_full {
                    Delivery::Full
                } else {
                    Delivery::Consumed(None)
                }
            }
            Receiver::Nobody | Receiver::Free(_) => {
                if let Some(request) = &mut slot.request {
                    request.discard(result);
                }
                if !more {
                    self.free(key);
                }
                Delivery::Consumed(buffer)
            }
        }
    }

    /// The next completion of a future's operation; frees the slot with the last one.
    #[inline]
    pub fn poll(&mut self, key: Key, waker: &Waker) -> Poll<Option<Completion>> {
        let Some(slot) = self.slot(key) else {
            return Poll::Ready(None);
        };
        if let Some(completion) = slot.take_kept() {
            if !completion.more {
                self.free(key);
            }
            return Poll::Ready(Some(completion));
        }
        match &mut slot.receiver {
            Receiver::Waker(known) => known.clone_from(waker),
            receiver => *receiver = Receiver::Waker(waker.clone()),
        }
        Poll::Pending
    }

    /// Whether a completion waits for the operation's future.
    pub fn has_kept(&mut self, key: Key) -> bool {
        self.slot(key).is_some_and(|slot| !slot.results.is_empty())
    }

    /// Nobody wants the results any more: what had arrived is closed, and its pool buffers are
    /// returned for the driver to give back. The slot lives on until the last completion unless it
    /// is `Done`.
    pub fn orphan(&mut self, key: Key) -> Vec<BufferId> {
        let Some(slot) = self.slot(key) else {
            return Vec::new();
        };
        slot.receiver = Receiver::Nobody;
        let mut buffers = Vec::new();
        while let Some(kept) = slot.results.pop() {
            if let Some(request) = &mut slot.request {
                request.discard(kept.result);
            }
            buffers.extend(kept.buffer);
        }
        if slot.phase == Phase::Done {
            self.free(key);
        }
        buffers
    }

    /// Every operation that is not free, for a driver that closes.
    pub fn keys(&self) -> Vec<Key> {
        let slots = self.chunks.iter().flatten().enumerate();
        slots
            .filter(|(_, slot)| slot.phase != Phase::Free)
            .map(|(index, slot)| Key {
                index: index as u32,
                generation: slot.generation,
            })
            .collect()
    }

    /// The operations that can be cancelled, and have not been.
    pub fn cancellable(&self) -> impl Iterator<Item = (Key, &Slot)> {
        let slots = self.chunks.iter().flatten().enumerate();
        slots
            .filter(|(_, slot)| {
                let phase = slot.phase;
                let is_under_way = matches!(
                    phase,
                    Phase::Queued | Phase::Armed | Phase::Working | Phase::Resting
                );
                is_under_way && !slot.cancelled
            })
            .map(|(index, slot)| {
                let key = Key {
                    index: index as u32,
                    generation: slot.generation,
                };
                (key, slot)
            })
    }

    /// Those of them that wait for a descriptor.
    pub fn cancellable_on(&self, fd: RawFd) -> Vec<Key> {
        let waits = |slot: &Slot| match slot.request().map(Operation::need) {
            Some(Need::Ready(known, _)) => known == fd,
            Some(Need::Pool(fds)) => fds.contains(&fd),
            _ => false,
        };
        let cancellable = self.cancellable();
        cancellable
            .filter_map(|(key, slot)| waits(slot).then_some(key))
            .collect()
    }

    /// Whether the kernel may still touch memory of any operation.
    pub fn lends_memory(&self) -> bool {
        let slots = self.chunks.iter().flatten();
        slots.filter_map(Slot::request).any(Operation::lends_memory)
    }

    /// Forget the slots without dropping what they own: the kernel may still write to it.
    pub fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.chunks));
        self.free_head = NO_SLOT;
        self.live_count = 0;
    }

    fn free(&mut self, key: Key) {
        let head = self.free_head;
        let slot = self.at(key.index);
        slot.phase = Phase::Free;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.receiver = Receiver::Free(head);
        while slot.results.pop().is_some() {}
        // Mostly it has been taken, and there is nothing to move.
        let left_over = slot.request.is_some().then(|| slot.request.take());
        self.free_head = key.index;
        self.live_count -= 1;
        // Dropped last: releasing a buffer may run foreign code.
        drop(left_over);
    }

    fn at(&mut self, index: u32) -> &mut Slot {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() * CHUNK) as u32;
        let last = first + CHUNK as u32 - 1;
        let slots = (first..=last)
            .map(|index| Slot::empty(if index == last { NO_SLOT } else { index + 1 }))
            .collect();
        self.chunks.push(slots);
        self.free_head = first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Nop;

    fn insert(table: &mut Table) -> Key {
        table.insert(Request::Nop(Nop), Sink::Handler(Token(7)))
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
    fn slot_is_no_larger_than_it_was_made() {
        assert!(size_of::<Slot>() <= 144);
    }

    #[test]
    fn invariant_2_stale_completion_reaches_nobody() {
        let mut table = Table::new();
        let old = insert(&mut table);
        assert!(matches!(
            table.complete(old, 0, false, None),
            Delivery::Event(_)
        ));
        let new = insert(&mut table);
        assert_eq!(new.index, old.index);
        assert!(matches!(
            table.complete(old, 5, false, None),
            Delivery::Consumed(None)
        ));
        assert!(table.slot(new).is_some());
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn invariant_3_orphan_keeps_its_slot_until_the_last_completion() {
        let mut table = Table::new();
        let key = insert(&mut table);
        assert!(table.orphan(key).is_empty());
        assert_eq!(table.len(), 1);
        assert!(matches!(
            table.complete(key, 1, true, None),
            Delivery::Consumed(None)
        ));
        assert_eq!(table.len(), 1);
        assert!(matches!(
            table.complete(key, 0, false, None),
            Delivery::Consumed(None)
        ));
        assert_eq!(table.len(), 0);
    }
}
