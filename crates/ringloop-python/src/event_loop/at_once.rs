//! Operations that complete at once, and for how long they may in one turn: a task that awaits only such
//! never suspends, and no other callback of the loop would run.
//!
//! Called by: `fs`, for what the page cache has.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ringloop::embed::sys::clock;

use crate::limits;

/// The turn with the last such operation, and when it had its first.
#[derive(Default)]
pub(super) struct AtOnce {
    turn: AtomicU64,
    began_ns: AtomicU64,
}

impl AtOnce {
    /// Whether another operation may complete at once in this turn.
    pub fn has_time(&self, turn: u64) -> bool {
        let now_ns = clock::monotonic_ns();
        if self.turn.swap(turn, Relaxed) != turn {
            self.began_ns.store(now_ns, Relaxed);
        }
        now_ns.saturating_sub(self.began_ns.load(Relaxed)) < limits::AT_ONCE_NANOSECONDS
    }
}
