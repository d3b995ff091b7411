//! Settings for a driver.

use crate::choice::Choice;
use std::time::Duration;

/// Settings for a driver; sizes and polling apply to the ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub choice: Choice,
    /// Submission polling: a kernel thread takes the entries, and sleeps when idle for this long.
    pub polling: Option<Duration>,
    pub entries: u32,
    pub completion_entries: u32,
}
