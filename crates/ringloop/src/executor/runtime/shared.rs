//! The state of a loop, shared by its handles.

use super::engine::Engine;
use super::large::Large;
use super::team::TeamMember;
use crate::driver::Key;
use crate::executor::task::core::{self, Arrival, Hub, Next};
use crate::sys::fd::OwnedFd;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

pub(super) struct Shared {
    pub(super) id: u64,
    pub(super) engine: RefCell<Engine>,
    pub(super) hub: Arc<Hub>,
    pub(super) arrivals: RefCell<VecDeque<Arrival>>,
    /// Operations whose future was dropped while the engine was borrowed (from a waker's drop).
    pub(super) dropped: RefCell<Vec<Key>>,
    /// Pool buffers that operations send from.
    pub(super) held_count: Cell<usize>,
    pub(super) large: RefCell<Large>,
    /// How often `Local::cancel_all` was called.
    pub(super) cancel_count: Cell<u32>,
    /// Descriptors to close that were dropped while the engine was borrowed.
    pub(super) closing: RefCell<Vec<OwnedFd>>,
    /// Operations that the current poll may still complete at once.
    pub(super) attempts_left: Cell<u32>,
    /// Polls of the turn that tasks have given up, which have more to do.
    pub(super) polls_spent: Cell<usize>,
    /// Refusals since the budget was last renewed.
    pub(super) refused: Cell<u32>,
    /// Set once the loop becomes one of several.
    pub(super) member: OnceCell<TeamMember>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        cancel_tasks(&self.hub);
        core::close_hub(&self.hub);
    }
}

/// Drops the futures of all tasks, and of tasks started meanwhile.
pub(super) fn cancel_tasks(hub: &Hub) {
    let mut found = true;
    while std::mem::take(&mut found) {
        let mut next = 0;
        while let Some((task, after)) = hub.task_from(next) {
            found |= task.cancel();
            next = after;
        }
        // Tasks that were never polled, and the memory of tasks that have ended.
        while let Some(next) = Next::of(hub) {
            found |= next.dismiss();
        }
    }
}
