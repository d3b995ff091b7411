//! What a loop consists of, behind its handles.

use super::engine::Engine;
use super::large::Large;
use super::team::Seat;
use crate::driver::{Key, Lease};
use crate::executor::task::core::{self, Arrival, Hub, Next};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(super) struct Shared {
    pub(super) id: u64,
    pub(super) engine: RefCell<Engine>,
    pub(super) hub: Arc<Hub>,
    pub(super) arrivals: RefCell<VecDeque<Arrival>>,
    /// Operations whose future was dropped while the engine was borrowed (by a waker's own drop).
    pub(super) dropped: RefCell<Vec<Key>>,
    /// Pool buffers that were dropped meanwhile.
    pub(super) returned: RefCell<Vec<Lease>>,
    /// Pool buffers that operations send from.
    pub(super) lent_count: Cell<usize>,
    pub(super) large: RefCell<Large>,
    /// How often everything was asked to stop.
    pub(super) cancel_count: Cell<u32>,
    /// Descriptors that were given up meanwhile.
    pub(super) closing: RefCell<Vec<OwnedFd>>,
    /// Operations that the poll that runs may still have done at once.
    pub(super) attempts_left: Cell<u32>,
    /// How often a share was refused, up to the next that is renewed.
    pub(super) refused: Cell<u32>,
    /// Set once, when the loop becomes one of several.
    pub(super) seat: OnceCell<Seat>,
}

impl Shared {
    #[inline]
    pub(super) fn give_back(&self, lease: Lease) {
        match self.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().give_back(lease),
            // By a waker's own drop; the next turn does it.
            Err(_) => self.returned.borrow_mut().push(lease),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        cancel_tasks(&self.hub);
        core::close_hub(&self.hub);
    }
}

/// Drop the futures of all tasks, and of those that start meanwhile.
pub(super) fn cancel_tasks(hub: &Hub) {
    let mut found = true;
    while std::mem::take(&mut found) {
        let mut next = 0;
        while let Some((task, after)) = hub.task_from(next) {
            found |= task.cancel();
            next = after;
        }
        // Those that were never polled, and the memory of those that are over.
        while let Some(next) = Next::of(hub) {
            found |= next.dismiss();
        }
    }
}
