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
}

impl Ready {
    /// Add at the end.
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        self.queue.push_back(entry);
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
        self.queue.pop_front()
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Say whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
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

    /// Add a timer to what the wait has brought, behind the watchers.
    #[inline]
    pub fn bring_due(&mut self, entry: Entry) {
        self.due.push_back(entry);
    }

    /// Put what the wait has brought before all the rest; says how many those are.
    pub fn put_brought_first(&mut self) -> usize {
        self.brought.append(&mut self.ends);
        self.brought.append(&mut self.due);
        let count = self.brought.len();
        if count > 0 {
            self.brought.append(&mut self.queue);
            std::mem::swap(&mut self.queue, &mut self.brought);
        }
        count
    }

    /// Put it behind all the rest: what left the loop has ended the turn.
    pub fn put_brought_last(&mut self) {
        self.queue.append(&mut self.brought);
        self.queue.append(&mut self.ends);
        self.queue.append(&mut self.due);
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
    pub fn take(&mut self) -> VecDeque<Entry> {
        self.put_brought_first();
        std::mem::take(&mut self.queue)
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
