//! State of a loop that its tasks, its wakers and other threads share.
//!
//! Owns: the ready queue and the list of pending tasks (for the loop thread), the inbox (for all
//! threads). Called by: `task` (wakes and ends), `local` (takes), `workers` (sends). Polls no
//! futures.

use super::count::SplitCount;
use super::inbox::Inbox;
use super::owned::Owned;
use crate::error::Error;
use crate::executor::task::park::Unpark;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

/// Starts a task on the loop thread, so that its future need not be `Send`.
pub(crate) type Start<T, W> = Box<dyn FnOnce(&Arc<Hub<T, W>>) + Send>;

/// A message from another thread to a loop.
pub(crate) enum Arrival<T, W> {
    /// Wake a task. At most one per task is in the inbox.
    Wake(W),
    /// Start a task.
    Start(Start<T, W>),
}

impl<T, W> std::fmt::Debug for Arrival<T, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Wake(_) => "Wake",
            Self::Start(_) => "Start",
        })
    }
}

/// The shared state of one loop, whose tasks are named by a `T` and woken from other threads by a
/// `W`.
#[derive(Debug)]
pub(crate) struct Hub<T, W> {
    here: Owned<Here<T>>,
    pub inbox: Inbox<Arrival<T, W>>,
    /// Count of tasks with memory: the other threads' half. Together they hold one count of the
    /// `Arc` that this is in.
    task_count: SplitCount,
}

/// The loop thread's part.
#[derive(Debug)]
pub(crate) struct Here<T> {
    ready: RefCell<VecDeque<T>>,
    waiting: RefCell<Slots<T>>,
    task_count: Cell<i32>,
}

/// Every task that has been polled and has not ended, by number. Tasks not yet polled are in the
/// queue.
#[derive(Debug)]
struct Slots<T> {
    list: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    fn insert(&mut self, task: T) -> u32 {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.list.get_mut(index as usize)
        {
            *slot = Some(task);
            return index;
        }
        self.list.push(Some(task));
        (self.list.len() - 1) as u32
    }

    fn remove(&mut self, index: u32) {
        if let Some(slot) = self.list.get_mut(index as usize)
            && slot.take().is_some()
        {
            self.free.push(index);
        }
    }
}

impl<T> Here<T> {
    fn new() -> Self {
        Self {
            ready: RefCell::new(VecDeque::new()),
            waiting: RefCell::new(Slots { list: Vec::new(), free: Vec::new() }),
            task_count: Cell::new(0),
        }
    }

    /// Adds a task to the ready queue.
    #[inline]
    pub fn push_ready(&self, task: T) {
        self.ready.borrow_mut().push_back(task);
    }
}

impl<T: Copy, W> Hub<T, W> {
    /// Creates the hub of a loop on the calling thread.
    pub fn new(unpark: Unpark, inbox_messages: usize) -> Self {
        Self {
            here: Owned::new(Here::new()),
            inbox: Inbox::new(unpark, inbox_messages),
            task_count: SplitCount::new(),
        }
    }

    /// The loop thread's part; `None` on other threads.
    #[inline]
    pub fn here(&self) -> Option<&Here<T>> {
        self.here.get()
    }

    /// Adds a new task: ready, and counted.
    #[inline]
    pub fn add(&self, task: T) {
        if let Some(here) = self.here.get() {
            self.task_count.add(Some(&here.task_count));
            here.ready.borrow_mut().push_back(task);
        }
    }

    /// A task's memory was freed; returns true if it was the last of a closed loop.
    pub fn note_task_freed(&self) -> bool {
        self.task_count.sub(self.here.get().map(|here| &here.task_count))
    }

    /// The loop has ended; returns true if no task has memory.
    pub fn close_task_count(&self) -> bool {
        self.here.get().is_some_and(|here| self.task_count.close(&here.task_count))
    }

    /// Adds a task to the list of pending tasks; `None` on other threads than the loop's.
    pub fn insert(&self, task: T) -> Option<u32> {
        Some(self.here.get()?.waiting.borrow_mut().insert(task))
    }

    /// Removes a task from that list.
    pub fn remove(&self, slot: u32) {
        if let Some(here) = self.here.get() {
            here.waiting.borrow_mut().remove(slot);
        }
    }

    /// The task that has been ready the longest.
    #[inline]
    pub fn pop_ready(&self) -> Option<T> {
        self.here.get()?.ready.borrow_mut().pop_front()
    }

    /// The task that became ready last.
    pub fn pop_newest(&self) -> Option<T> {
        self.here.get()?.ready.borrow_mut().pop_back()
    }

    /// Number of ready tasks.
    pub fn ready_count(&self) -> usize {
        self.here.get().map_or(0, |here| here.ready.borrow().len())
    }

    /// A pending task, by its number, and the next number that may hold one.
    pub fn task_from(&self, mut slot: u32) -> Option<(T, u32)> {
        let waiting = self.here.get()?.waiting.borrow();
        loop {
            match waiting.list.get(slot as usize)? {
                Some(task) => return Some((*task, slot + 1)),
                None => slot += 1,
            }
        }
    }

    /// Wakes a task from another thread. Not bounded: there is one per task at most.
    pub fn send_wake(&self, wake: W) {
        // Fails only if the loop is closed; then the future is gone.
        drop(self.inbox.push(Arrival::Wake(wake)));
    }

    /// Starts a task from any thread. A full or closed inbox drops the closure and returns an
    /// error.
    pub fn send_start(&self, start: Start<T, W>) -> Result<(), Error> {
        self.inbox.send(Arrival::Start(start)).map_err(|(_, error)| error)
    }
}
