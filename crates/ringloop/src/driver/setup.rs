//! What a driver is asked for.

use crate::choice::Choice;
use std::time::Duration;

/// What a driver is asked for; the sizes and the polling are the ring's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub choice: Choice,
    /// A thread of the kernel takes the entries, and sleeps after so long without one.
    pub polling: Option<Duration>,
    pub entries: u32,
    pub completion_entries: u32,
}
