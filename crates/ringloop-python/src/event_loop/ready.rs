//! The ready ring: what the next pass runs, in order.
//!
//! An entry is a handle, or a step of a C task for which no handle was made (see `ffi/task_step.rs`).

use std::collections::VecDeque;

use pyo3::prelude::*;

use crate::ffi::{self, Obj, Visited, Visitor};
use crate::limits;

/// One thing to run.
pub enum Entry {
    /// A native `Handle` or `TimerHandle`.
    Handle(Obj),
    /// A task's step or wake-up, whose handle nobody could keep.
    Step {
        /// The step wrapper or the bound `task_wakeup`.
        callable: Obj,
        /// The future that is done, for a wake-up.
        argument: Option<Obj>,
        /// The task's context.
        context: Obj,
    },
}

/// First in, first out, but for what a wait has brought: that goes before what was scheduled meanwhile.
#[derive(Default)]
pub struct Ready {
    queue: VecDeque<Entry>,
    /// Handles of watchers, of children that have ended, and of timers that were due when the wait was over,
    /// until `put_brought_first`.
    brought: VecDeque<Entry>,
    ends: VecDeque<Entry>,
    due: VecDeque<Entry>,
    /// There was no memory to put what was brought before the rest, in one queue: it is taken from its own first.
    is_split: bool,
}

/// Move everything from one queue behind another, where there is memory for it.
fn append(into: &mut VecDeque<Entry>, from: &mut VecDeque<Entry>) -> bool {
    let fits = from.is_empty() || into.try_reserve(from.len()).is_ok();
    if fits {
        into.append(from);
    }
    fits
}

impl Ready {
    /// Add several at the end; where there is no memory for them they stay with the caller.
    pub fn append(&mut self, handles: &mut VecDeque<Obj>) {
        if self.queue.try_reserve(handles.len()).is_ok() {
            self.queue.extend(handles.drain(..).map(Entry::Handle));
        }
    }

    /// Add at the end what a user schedules, as many as there is memory for.
    #[inline(always)]
    pub fn try_push(&mut self, entry: Entry) -> PyResult<()> {
        if self.queue.len() == self.queue.capacity() {
            self.grow()?;
        }
        self.queue.push_back(entry);
        Ok(())
    }

    #[cold]
    fn grow(&mut self) -> PyResult<()> {
        ffi::spare()?;
        self.queue.try_reserve(1).map_err(ffi::no_memory)
    }

    /// Take the first.
    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        if self.is_split {
            return self.pop_split();
        }
        self.queue.pop_front()
    }

    #[cold]
    fn pop_split(&mut self) -> Option<Entry> {
        let first = self.brought.pop_front();
        self.is_split = !self.brought.is_empty();
        first.or_else(|| self.queue.pop_front())
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len() + if self.is_split { self.brought.len() } else { 0 }
    }

    /// Say whether there is none, nor any that could not be put in its place yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
            && self.brought.is_empty()
            && self.ends.is_empty()
            && self.due.is_empty()
    }

    /// Add to what the wait has brought.
    #[inline]
    pub fn bring(&mut self, entry: Entry) {
        self.brought.push_back(entry);
    }

    /// Add a child's end to what the wait has brought, behind all that the child has written.
    #[inline]
    pub fn bring_end(&mut self, entry: Entry) {
        self.ends.push_back(entry);
    }

    /// Whether there is memory for another timer in what the wait has brought.
    #[inline]
    pub fn has_room_for_due(&mut self) -> bool {
        self.due.try_reserve(1).is_ok()
    }

    /// Add a timer to what the wait has brought, behind the watchers.
    #[inline]
    pub fn bring_due(&mut self, entry: Entry) {
        self.due.push_back(entry);
    }

    /// Put what the wait has brought before all the rest; says how many those are. What there is no memory for is of the
    /// next turn.
    pub fn put_brought_first(&mut self) -> usize {
        if append(&mut self.brought, &mut self.ends) {
            append(&mut self.brought, &mut self.due);
        }
        let count = self.brought.len();
        self.is_split = count > 0 && !append(&mut self.brought, &mut self.queue);
        if count > 0 && !self.is_split {
            std::mem::swap(&mut self.queue, &mut self.brought);
        }
        count
    }

    /// Put it behind all the rest: what left the loop has ended the turn.
    pub fn put_brought_last(&mut self) {
        let all = [&mut self.brought, &mut self.ends, &mut self.due];
        self.is_split = !all
            .into_iter()
            .all(|brought| append(&mut self.queue, brought))
            && !self.brought.is_empty();
    }

    /// Give the memory of a burst back once it is over.
    pub fn shrink(&mut self) {
        for queue in [&mut self.queue, &mut self.brought, &mut self.due] {
            if queue.is_empty() && queue.capacity() > limits::READY_KEPT {
                queue.shrink_to(limits::READY_KEPT);
            }
        }
    }

    /// Move everything out, to be dropped outside of the cell.
    pub fn take(&mut self) -> impl Iterator<Item = Entry> + use<> {
        let Self {
            queue,
            brought,
            ends,
            due,
            ..
        } = std::mem::take(self);
        brought.into_iter().chain(ends).chain(due).chain(queue)
    }

    /// Show the references to the collector.
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        let brought = self.brought.iter().chain(&self.ends).chain(&self.due);
        for entry in brought.chain(&self.queue) {
            match entry {
                Entry::Handle(handle) => visitor.visit(handle)?,
                Entry::Step {
                    callable,
                    argument,
                    context,
                } => {
                    visitor.visit(callable)?;
                    if let Some(argument) = argument {
                        visitor.visit(argument)?;
                    }
                    visitor.visit(context)?;
                }
            }
        }
        Visited::Continue(())
    }
}
