//! A scheduler's plain memory: its coroutines and their phases, the ready queue, the stacks.
//!
//! Owns: [`SchedulerState`]. Called by: the rest of this folder, which borrows it for a few
//! instructions at a time and never while a coroutine runs.
//!
//! ```text
//!               wake                  taken off the queue
//!   Parked ────────────▶ Ready ─────────────────────────▶ Running ── closure's end ─▶ (free slot)
//!     ▲                    ▲                                │   │
//!     │                    └──── yields, or woken (Woken) ──┘   │
//!     └──────────────────────────────── parks ──────────────────┘
//! ```

use crate::stack::StackPool;
use crate::switch::Fiber;
use crate::task::Runnable;
use crate::unwind;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Parked,
    Ready,
    Running,
    /// Running, and ready again after that.
    Woken,
}

/// A coroutine that has not ended.
pub(super) struct Coroutine {
    pub task: Arc<dyn Runnable>,
    /// `None` before it begins and while it runs.
    pub fiber: Option<Fiber>,
    pub phase: Phase,
}

enum Slot {
    Taken(Coroutine),
    /// With the next free slot.
    Free(Option<u32>),
}

/// What an uninterruptible wait waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uninterruptible {
    /// The coroutines of a scope.
    Scope,
    /// The last completion of an operation on the coroutine's memory.
    Kernel,
}

pub(super) struct SchedulerState {
    slots: Vec<Slot>,
    free_head: Option<u32>,
    pub ready: VecDeque<u32>,
    /// The task spawned last that may begin on any worker.
    pub lifo_slot: Option<Arc<dyn Runnable>>,
    /// Cancelled coroutines that unwind once no other does.
    pub deferred: Vec<u32>,
    /// The next moment without unwinding is to be noted.
    pub watches_unwinding: bool,
    /// Coroutines that do not unwind before their wait ends.
    pub uninterruptible: Vec<(u32, Uninterruptible)>,
    pub stacks: StackPool,
    /// Of the executor's task that runs the coroutines.
    pub waker: Option<Waker>,
    /// That task runs, or was woken.
    pub is_awake: bool,
    pub is_closed: bool,
}

impl SchedulerState {
    pub fn new(stack_bytes: usize) -> Self {
        Self {
            slots: Vec::new(),
            free_head: None,
            ready: VecDeque::new(),
            lifo_slot: None,
            deferred: Vec::new(),
            watches_unwinding: false,
            uninterruptible: Vec::new(),
            stacks: StackPool::new(stack_bytes),
            waker: None,
            is_awake: true,
            is_closed: false,
        }
    }

    pub fn get(&mut self, slot: u32) -> Option<&mut Coroutine> {
        match self.slots.get_mut(slot as usize)? {
            Slot::Taken(coroutine) => Some(coroutine),
            Slot::Free(_) => None,
        }
    }

    /// The coroutines and their slots.
    pub fn all(&mut self) -> impl Iterator<Item = (u32, &mut Coroutine)> {
        let slots = (0..).zip(&mut self.slots);
        slots.filter_map(|(index, slot)| match slot {
            Slot::Taken(coroutine) => Some((index, coroutine)),
            Slot::Free(_) => None,
        })
    }

    pub fn insert(&mut self, coroutine: Coroutine) -> u32 {
        if let Some(index) = self.free_head
            && let Some(slot) = self.slots.get_mut(index as usize)
            && let Slot::Free(next) = *slot
        {
            self.free_head = next;
            *slot = Slot::Taken(coroutine);
            return index;
        }
        self.slots.push(Slot::Taken(coroutine));
        (self.slots.len() - 1) as u32
    }

    pub fn remove(&mut self, index: u32) -> Option<Coroutine> {
        let slot = self.slots.get_mut(index as usize)?;
        match std::mem::replace(slot, Slot::Free(self.free_head)) {
            Slot::Taken(coroutine) => {
                self.free_head = Some(index);
                Some(coroutine)
            }
            free @ Slot::Free(_) => {
                *slot = free;
                None
            }
        }
    }

    /// Takes the first of the ready queue, and prefetches the stack of the one after it.
    #[inline(always)]
    pub fn pop_ready(&mut self) -> Option<u32> {
        let slot = self.ready.pop_front();
        if let Some(next) = self.ready.front().copied()
            && let Some(coroutine) = self.get(next)
            && let Some(fiber) = &coroutine.fiber
        {
            fiber.prefetch();
        }
        slot
    }

    pub fn wake(&mut self, slot: u32) {
        let Some(coroutine) = self.get(slot) else {
            return;
        };
        match coroutine.phase {
            Phase::Parked => {
                coroutine.phase = Phase::Ready;
                self.ready.push_back(slot);
                self.wake_executor();
            }
            Phase::Running => coroutine.phase = Phase::Woken,
            Phase::Ready | Phase::Woken => {}
        }
    }

    /// Has the executor run the coroutines, unless it is about to.
    pub fn wake_executor(&mut self) {
        if !std::mem::replace(&mut self.is_awake, true)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Notes a moment without unwinding. On the loop's own stack, `panicking` speaks of parked
    /// coroutines only.
    #[inline(always)]
    pub fn check_unwinding(&mut self) {
        if self.watches_unwinding && !std::thread::panicking() {
            self.watches_unwinding = false;
            unwind::note_no_unwinding();
            for slot in std::mem::take(&mut self.deferred) {
                self.wake(slot);
            }
        }
    }
}
