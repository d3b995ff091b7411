//! The ready ring: the callbacks of the next pass, in order.
//!
//! An entry is a handle, or a step of a C task without a handle (see `ffi/task_step.rs`).

use std::collections::VecDeque;

use pyo3::prelude::*;

use crate::ffi::{self, Obj, Visited, Visitor};
use crate::limits;

/// One thing to run.
pub enum Entry {
    /// A native `Handle` or `TimerHandle`.
    Handle(Obj),
    /// A task's step or wake-up, whose handle cannot be kept.
    Step {
        /// The step wrapper or the bound `task_wakeup`.
        callable: Obj,
        /// The completed future, for a wake-up.
        argument: Option<Obj>,
        /// The task's context.
        context: Obj,
    },
}

/// First in, first out, except for callbacks of a wait: they go before what was scheduled
/// meanwhile.
#[derive(Default)]
pub struct Ready {
    queue: VecDeque<Entry>,
    /// Handles of watchers, of exited children, and of timers that were due after the wait, until
    /// `prepend_io_callbacks`.
    brought: VecDeque<Entry>,
    ends: VecDeque<Entry>,
    due: VecDeque<Entry>,
    /// There was no memory to prepend the callbacks of the wait: they are taken from their own
    /// queue first.
    is_split: bool,
}

/// Moves everything from one queue to the end of another, if there is memory.
#[inline]
fn append(into: &mut VecDeque<Entry>, from: &mut VecDeque<Entry>) -> bool {
    if from.is_empty() {
        return true;
    }
    let fits = into.try_reserve(from.len()).is_ok();
    if fits {
        into.append(from);
    }
    fits
}

impl Ready {
    /// Appends several; without memory they stay with the caller.
    pub fn append(&mut self, handles: &mut VecDeque<Obj>) {
        if self.queue.try_reserve(handles.len()).is_ok() {
            self.queue.extend(handles.drain(..).map(Entry::Handle));
        }
    }

    /// Appends a callback scheduled by the application, if there is memory.
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

    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len() + if self.is_split { self.brought.len() } else { 0 }
    }

    /// Whether there are none, including those not yet prepended.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
            && self.brought.is_empty()
            && self.ends.is_empty()
            && self.due.is_empty()
    }

    /// Adds to the callbacks of the wait.
    #[inline]
    pub fn bring(&mut self, entry: Entry) {
        self.brought.push_back(entry);
    }

    /// Adds a child's exit to the callbacks of the wait, after all of the child's output.
    #[inline]
    pub fn bring_end(&mut self, entry: Entry) {
        self.ends.push_back(entry);
    }

    /// Whether there is memory for another timer in the callbacks of the wait.
    #[inline]
    pub fn has_room_for_due(&mut self) -> bool {
        self.due.try_reserve(1).is_ok()
    }

    /// Adds a timer to the callbacks of the wait, after the watchers.
    #[inline]
    pub fn bring_due(&mut self, entry: Entry) {
        self.due.push_back(entry);
    }

    /// Puts the callbacks of the wait before the rest; returns their number. Entries without memory
    /// are left for the next turn.
    pub fn prepend_io_callbacks(&mut self) -> usize {
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

    /// Puts them after the rest: an exception that left the loop has ended the turn.
    pub fn append_io_callbacks(&mut self) {
        let all = [&mut self.brought, &mut self.ends, &mut self.due];
        self.is_split = !all.into_iter().all(|brought| append(&mut self.queue, brought))
            && !self.brought.is_empty();
    }

    /// Frees a burst's memory once it is over.
    pub fn shrink(&mut self) {
        for queue in [&mut self.queue, &mut self.brought, &mut self.due] {
            if queue.is_empty() && queue.capacity() > limits::READY_KEPT {
                queue.shrink_to(limits::READY_KEPT);
            }
        }
    }

    /// Moves everything out, to be dropped outside the cell.
    pub fn take(&mut self) -> impl Iterator<Item = Entry> + use<> {
        let Self { queue, brought, ends, due, .. } = std::mem::take(self);
        brought.into_iter().chain(ends).chain(due).chain(queue)
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        let brought = self.brought.iter().chain(&self.ends).chain(&self.due);
        for entry in brought.chain(&self.queue) {
            match entry {
                Entry::Handle(handle) => visitor.visit(handle)?,
                Entry::Step { callable, argument, context } => {
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
