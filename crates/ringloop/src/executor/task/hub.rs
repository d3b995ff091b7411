//! What a loop's tasks, its wakers and other threads meet at.
//!
//! Owns: the ready queue and the list of tasks that wait (for the loop's thread), the inbox (for all threads).
//! Called by: `task` (wakes and ends), `local` (takes), `workers` (sends).
//! Never does: poll a future.

use super::count::SplitCount;
use super::inbox::Inbox;
use super::owned::Owned;
use crate::error::Error;
use crate::executor::task::park::Unpark;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

/// Starts a task on the loop's own thread, so that its future need not be `Send`.
pub(crate) type Start<T, W> = Box<dyn FnOnce(&Arc<Hub<T, W>>) + Send>;

/// What other threads send to a loop.
pub(crate) enum Arrival<T, W> {
    /// Wake a task. At most one a task is on its way.
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

/// The meeting point of one loop, whose tasks are named by a `T` and woken from elsewhere by a `W`.
#[derive(Debug)]
pub(crate) struct Hub<T, W> {
    here: Owned<Here<T>>,
    inbox: Inbox<Arrival<T, W>>,
    /// How many tasks have memory, the other threads' half; together they hold one count of the `Arc`
    /// that this is in.
    cells: SplitCount,
}

/// What the loop's thread keeps.
#[derive(Debug)]
pub(crate) struct Here<T> {
    ready: RefCell<VecDeque<T>>,
    waiting: RefCell<Slots<T>>,
    cells: Cell<i32>,
}

/// Every task that has been polled and is not over, by number. What was not polled stands in the queue.
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
            waiting: RefCell::new(Slots {
                list: Vec::new(),
                free: Vec::new(),
            }),
            cells: Cell::new(0),
        }
    }

    /// Put a task in the ready queue.
    #[inline]
    pub fn push_ready(&self, task: T) {
        self.ready.borrow_mut().push_back(task);
    }
}

impl<T: Copy, W> Hub<T, W> {
    /// The meeting point of a loop on the calling thread.
    pub fn new(unpark: Unpark, inbox_messages: usize) -> Self {
        Self {
            here: Owned::new(Here::new()),
            inbox: Inbox::new(unpark, inbox_messages),
            cells: SplitCount::new(),
        }
    }

    /// What the loop's thread keeps, where the calling thread is that.
    #[inline]
    pub fn here(&self) -> Option<&Here<T>> {
        self.here.get()
    }

    /// A new task: ready, and with memory that the loop counts.
    #[inline]
    pub fn add(&self, task: T) {
        if let Some(here) = self.here.get() {
            self.cells.add(Some(&here.cells));
            here.ready.borrow_mut().push_back(task);
        }
    }

    /// A task's memory was freed; returns whether it was the last one of a loop that is over.
    pub fn discount_cell(&self) -> bool {
        self.cells.sub(self.here.get().map(|here| &here.cells))
    }

    /// The loop is over; returns whether no task has memory.
    pub fn close_cells(&self) -> bool {
        self.here
            .get()
            .is_some_and(|here| self.cells.close(&here.cells))
    }

    /// Add a task to the list of those that wait; `None` on another thread than the loop's.
    pub fn insert(&self, task: T) -> Option<u32> {
        Some(self.here.get()?.waiting.borrow_mut().insert(task))
    }

    /// Take a task off that list.
    pub fn remove(&self, slot: u32) {
        if let Some(here) = self.here.get() {
            here.waiting.borrow_mut().remove(slot);
        }
    }

    /// The task that has been ready for the longest time.
    #[inline]
    pub fn pop_ready(&self) -> Option<T> {
        self.here.get()?.ready.borrow_mut().pop_front()
    }

    /// How many tasks are ready.
    pub fn ready_count(&self) -> usize {
        self.here.get().map_or(0, |here| here.ready.borrow().len())
    }

    /// A task that waits, by its number, and the next number that may hold one.
    pub fn task_from(&self, mut slot: u32) -> Option<(T, u32)> {
        let waiting = self.here.get()?.waiting.borrow();
        loop {
            match waiting.list.get(slot as usize)? {
                Some(task) => return Some((*task, slot + 1)),
                None => slot += 1,
            }
        }
    }

    /// Wake a task from another thread. Never refused for want of room: there is one a task at most.
    pub fn send_wake(&self, wake: W) {
        // Refused only when the loop is closed; then the future is gone.
        drop(self.inbox.push(Arrival::Wake(wake)));
    }

    /// Start a task from any thread. A full or closed inbox drops the closure and says why.
    pub fn send_start(&self, start: Start<T, W>) -> Result<(), Error> {
        self.inbox
            .send(Arrival::Start(start))
            .map_err(|(_, error)| error)
    }

    /// Whether anything may have arrived; always after a wake for it.
    #[inline]
    pub fn has_arrivals(&self) -> bool {
        self.inbox.holds_any()
    }

    /// Swap what has arrived into `into`, which must be empty.
    pub fn take_arrivals(&self, into: &mut VecDeque<Arrival<T, W>>) {
        self.inbox.take(into);
    }

    /// Whether this is a forked child, and the loop its parent's.
    pub fn is_inherited(&self) -> bool {
        self.inbox.is_inherited()
    }

    /// Whether no other thread has sent anything since the last look.
    pub fn is_inbox_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Refuse what comes from now on, and return what nobody took.
    pub fn close_inbox(&self) -> VecDeque<Arrival<T, W>> {
        self.inbox.close()
    }
}
