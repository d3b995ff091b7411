//! The set of descriptors that others may close, and what it has reported.
//!
//! Owns: [`BorrowedSet`]. Called by: `driver::uring`, and `borrowed`, which polls with it.

use crate::driver::watches::Watches;
use crate::op::Key;
use crate::sys::interest::Interest;
use std::collections::VecDeque;

/// The set, and what it has reported.
#[derive(Debug)]
pub(super) struct BorrowedSet {
    /// None if the kernel refused it.
    pub watches: Option<Watches>,
    /// Polls in the set.
    pub waiting_count: usize,
    /// The ring polls the set.
    pub is_polled: bool,
    /// Reported, and not delivered yet.
    pub ready: VecDeque<(Key, Interest)>,
    /// Brief polls on the ring, some ended since, and when the set is to have them.
    pub brief: VecDeque<(Key, u64)>,
}

impl BorrowedSet {
    pub fn new() -> Self {
        Self {
            watches: Watches::new().ok(),
            waiting_count: 0,
            is_polled: false,
            ready: VecDeque::new(),
            brief: VecDeque::new(),
        }
    }

    /// True if the ring has to poll the set before a wait.
    pub fn needs_poll(&self) -> bool {
        self.waiting_count > 0 && !self.is_polled
    }

    /// True if the ring has polls that are to move to the set.
    pub fn has_brief(&self) -> bool {
        !self.brief.is_empty()
    }

    /// True if a poll has completed that is not delivered yet.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}
