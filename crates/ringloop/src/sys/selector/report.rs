//! What a registration asks for and what a wait reports, on every backend.

use super::super::interest::Interest;
use std::time::Duration;

/// Most reports of a single wait; the rest comes with the next, in the kernel's round-robin order.
pub const EVENTS_PER_WAIT: usize = 256;

/// Longest timeout passed to the kernel; a longer one ends early without reports, which contract 7
/// allows.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// When a registration reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// While the condition holds.
    Level,
    /// When the condition begins to hold, or holds again.
    Edge,
}

/// A report of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The word given at registration.
    pub data: u64,
    /// The directions that would not block now.
    pub interest: Interest,
}
