//! Calls of other threads to a running loop, until it takes them.
//!
//! Owns: the queue, its bound, and the hint that there is something in it. Called by: any thread
//! (`LoopCore::send`) and the turn.
//!
//! The first message of a batch wakes the loop, which sees to it that a loop with messages never
//! sleeps: it is put, the hint is set, then the loop is woken; and a loop that is about to sleep
//! looks at the hint first, and does not sleep if it was woken since. loom checks that order in the
//! engine's `park.rs`, which has the flag.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use ringloop::Error;

use super::ready::Ready;
use crate::error;
use crate::ffi::{Confined, Obj, Raise as _, Visited, Visitor};
use crate::limits;

/// The messages of one loop.
#[derive(Default)]
pub struct Inbox {
    queue: Confined<Queue>,
    /// Set after every first message; the turn clears it before it takes them all.
    hint: AtomicBool,
}

#[derive(Default)]
struct Queue {
    handles: VecDeque<Obj>,
    /// Zero before `__init__` and after `close`.
    capacity: usize,
}

/// Whether a message is bounded by the inbox's capacity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// An application's call.
    Capacity,
    /// A reply to a request of the loop, which has a waiter.
    Request,
}

/// Why a message was refused.
enum Refusal {
    Closed,
    Full { waiting: usize },
    NoMemory,
}

impl Queue {
    /// Adds a message; whether it is the first one. A refused one is returned, to be dropped
    /// outside the cell.
    fn push(&mut self, handle: Obj, bound: Bound) -> Result<bool, (Obj, Refusal)> {
        let waiting = self.handles.len();
        if self.capacity == 0 {
            return Err((handle, Refusal::Closed));
        }
        if bound == Bound::Capacity && waiting >= self.capacity {
            return Err((handle, Refusal::Full { waiting }));
        }
        if self.handles.try_reserve(1).is_err() {
            return Err((handle, Refusal::NoMemory));
        }
        self.handles.push_back(handle);
        Ok(waiting == 0)
    }
}

impl Inbox {
    /// Accepts up to `capacity` messages, at least one, from now on.
    pub fn open(&self, capacity: usize) -> PyResult<()> {
        Ok(self.queue.with(|queue| queue.capacity = capacity)?)
    }

    /// Refuses messages from now on; returns those not taken.
    pub fn close(&self) -> PyResult<VecDeque<Obj>> {
        Ok(self.queue.with(std::mem::take)?.handles)
    }

    /// How many messages wait.
    pub fn len(&self) -> PyResult<usize> {
        Ok(self.queue.with(|queue| queue.handles.len())?)
    }

    /// Whether there may be messages.
    #[inline]
    pub fn may_hold_any(&self) -> bool {
        self.hint.load(Relaxed)
    }

    /// Adds a message; whether the loop is to be woken.
    #[inline]
    pub fn send(&self, handle: Obj, bound: Bound) -> PyResult<bool> {
        let (handle, refusal) = match self.opened(|queue| queue.push(handle, bound)) {
            Ok(is_first) => {
                if is_first {
                    self.hint.store(true, Relaxed);
                }
                return Ok(is_first);
            }
            Err(refused) => refused,
        };
        drop(handle);
        Err(match refusal {
            Refusal::Closed => error::closed(),
            Refusal::Full { waiting } => error::from_engine(Error::InboxFull { waiting }),
            Refusal::NoMemory => PyMemoryError::raise_bare(),
        })
    }

    /// Moves all messages into `ready`. Returns false if it lacked memory: they stay, and the hint
    /// shows it.
    pub fn take(&self, ready: &Confined<Ready>) -> PyResult<bool> {
        self.hint.store(false, Relaxed);
        let (moved, are_left) = self.opened(|queue| {
            let moved = ready.with(|ready| ready.append(&mut queue.handles));
            // Frees a burst's memory once it is over.
            queue.handles.shrink_to(limits::MESSAGES_KEPT);
            (moved, !queue.handles.is_empty())
        });
        if are_left {
            self.hint.store(true, Relaxed);
        }
        moved?;
        Ok(!are_left)
    }

    /// Opens the queue. Without the interpreter lock, this waits for another thread that is inside,
    /// however long that is preempted: a message must not be refused for it.
    #[inline]
    fn opened<R>(&self, mut body: impl FnOnce(&mut Queue) -> R) -> R {
        loop {
            body = match self.queue.try_with(body) {
                Ok(done) => return done,
                Err(body) => body,
            };
        }
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.queue.visit(|queue| queue.handles.iter().try_for_each(|handle| visitor.visit(handle)))
    }
}
