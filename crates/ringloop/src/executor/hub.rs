//! What a loop's tasks, its wakers and other threads meet at.
//!
//! Owns: the ready queue and the list of tasks (for the loop's thread), the inbox (for all threads).
//! Called by: `task` (wakes and ends), `local` (takes), `workers` (sends).
//! Never does: poll a future.

use super::Unpark;
use super::count::SplitCount;
use super::inbox::Inbox;
use super::local::Local;
use super::owned::Owned;
use super::task::{RemoteWake, TaskRef};
use crate::error::Error;
use std::cell::RefCell;
use std::collections::VecDeque;

/// What other threads send to a loop.
pub(super) enum Arrival {
    /// Wake a task. At most one a task is on its way.
    Wake(RemoteWake),
    /// Start a task: the future is made by the loop's own thread, and need not be `Send`.
    Start(Box<dyn FnOnce(&Local) + Send>),
}

impl std::fmt::Debug for Arrival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Wake(_) => "Wake",
            Self::Start(_) => "Start",
        })
    }
}

/// The meeting point of one loop.
#[derive(Debug)]
pub(super) struct Hub {
    lists: Owned<Lists>,
    inbox: Inbox<Arrival>,
    /// The tasks that have memory; together they hold one count of the `Arc` that this is in.
    pub cells: SplitCount<()>,
}

#[derive(Debug, Default)]
struct Lists {
    ready: RefCell<VecDeque<TaskRef>>,
    tasks: RefCell<Slots>,
}

/// Every task that is not over, by number.
#[derive(Debug, Default)]
struct Slots {
    list: Vec<Slot>,
    free_head: Option<u32>,
    live_count: usize,
}

#[derive(Debug)]
enum Slot {
    Task(TaskRef),
    /// And the next free one.
    Free(Option<u32>),
}

impl Slots {
    fn insert(&mut self, task: TaskRef) -> u32 {
        self.live_count += 1;
        if let Some(index) = self.free_head
            && let Some(slot) = self.list.get_mut(index as usize)
            && let Slot::Free(next) = *slot
        {
            self.free_head = next;
            *slot = Slot::Task(task);
            return index;
        }
        self.list.push(Slot::Task(task));
        (self.list.len() - 1) as u32
    }

    fn remove(&mut self, index: u32) {
        if let Some(slot @ Slot::Task(_)) = self.list.get_mut(index as usize) {
            *slot = Slot::Free(self.free_head);
            self.free_head = Some(index);
            self.live_count -= 1;
        }
    }
}

impl Hub {
    /// The meeting point of a loop on the calling thread.
    pub fn new(unpark: Unpark, inbox_messages: usize) -> Self {
        Self {
            lists: Owned::new(Lists::default()),
            inbox: Inbox::new(unpark, inbox_messages),
            cells: SplitCount::new(()),
        }
    }

    /// Add a task to the list of all; `None` on another thread than the loop's.
    pub fn insert(&self, task: TaskRef) -> Option<u32> {
        let lists = self.lists.get()?;
        Some(lists.tasks.borrow_mut().insert(task))
    }

    /// Take a task off the list of all.
    pub fn remove(&self, slot: u32) {
        if let Some(lists) = self.lists.get() {
            lists.tasks.borrow_mut().remove(slot);
        }
    }

    /// Put a task in the ready queue.
    pub fn push_ready(&self, task: TaskRef) {
        if let Some(lists) = self.lists.get() {
            lists.ready.borrow_mut().push_back(task);
        }
    }

    /// The task that has been ready for the longest time.
    pub fn pop_ready(&self) -> Option<TaskRef> {
        self.lists.get()?.ready.borrow_mut().pop_front()
    }

    /// How many tasks are ready.
    pub fn ready_count(&self) -> usize {
        self.lists
            .get()
            .map_or(0, |lists| lists.ready.borrow().len())
    }

    /// How many tasks are not over.
    pub fn task_count(&self) -> usize {
        self.lists
            .get()
            .map_or(0, |lists| lists.tasks.borrow().live_count)
    }

    /// A task by its number; what it is followed by is the next number that may hold one.
    pub fn task_from(&self, mut slot: u32) -> Option<(TaskRef, u32)> {
        let tasks = self.lists.get()?.tasks.borrow();
        loop {
            match tasks.list.get(slot as usize)? {
                Slot::Task(task) => return Some((*task, slot + 1)),
                Slot::Free(_) => slot += 1,
            }
        }
    }

    /// Wake a task from another thread. Never refused for want of room: there is one a task at most.
    pub fn send_wake(&self, wake: RemoteWake) {
        // Refused only when the loop is closed; then the future is gone.
        drop(self.inbox.push(Arrival::Wake(wake)));
    }

    /// Start a task from any thread. A full or closed inbox drops the closure and says why.
    pub fn send_start(&self, start: Box<dyn FnOnce(&Local) + Send>) -> Result<(), Error> {
        self.inbox
            .send(Arrival::Start(start))
            .map_err(|(_, error)| error)
    }

    /// Swap what has arrived into `into`, which must be empty.
    pub fn take_arrivals(&self, into: &mut VecDeque<Arrival>) {
        self.inbox.take(into);
    }

    /// Refuse what comes from now on, and return what nobody took.
    pub fn close_inbox(&self) -> VecDeque<Arrival> {
        self.inbox.close()
    }
}
