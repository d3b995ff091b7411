//! The ready ring: what the next pass runs, in order.
//!
//! An entry is a handle, or a step of a C task for which no handle was made (see `ffi/task_step.rs`).

use std::collections::VecDeque;

use crate::ffi::{Obj, Visited, Visitor};
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

/// First in, first out.
#[derive(Default)]
pub struct Ready {
    queue: VecDeque<Entry>,
}

impl Ready {
    /// Add at the end.
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        self.queue.push_back(entry);
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

    /// Add what was taken out before at the end.
    pub fn append(&mut self, mut taken: VecDeque<Entry>) {
        if self.queue.is_empty() {
            // Also the memory comes back, for the next pass.
            self.queue = taken;
        } else {
            self.queue.append(&mut taken);
        }
    }

    /// Give the memory of a burst back once it is over.
    pub fn shrink(&mut self) {
        if self.queue.is_empty() && self.queue.capacity() > limits::READY_KEPT {
            self.queue.shrink_to(limits::READY_KEPT);
        }
    }

    /// Move everything out, to be dropped outside of the cell.
    pub fn take(&mut self) -> VecDeque<Entry> {
        std::mem::take(&mut self.queue)
    }

    /// Show the references to the collector.
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        for entry in &self.queue {
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
