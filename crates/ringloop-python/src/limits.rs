//! Every bound of the Python loop, with its unit and its reason. The engine's own are in its crate.

/// Passes over the ready ring between two looks at the kernel. A chain of callbacks (one schedules
/// the next) costs one system call in so many links; each pass is still bounded by the two below.
pub const READY_PASSES_MAX: usize = 64;

/// Callbacks after which no further pass begins before the kernel was asked.
pub const READY_CALLBACKS_MAX: usize = 16 * 1024;

/// Nanoseconds after which no further pass begins before the kernel was asked: what a loaded
/// connection may wait longer because of ready callbacks, below the noise of a network.
pub const READY_NANOSECONDS_MAX: u64 = 50_000;

/// Completions taken over in one turn before callbacks run, so that a flood of them cannot hold
/// callbacks up; the rest stay in the completion queue.
pub const EVENTS_PER_TURN: usize = 4096;

/// Timers below which cancelled ones are not swept (as asyncio's `_MIN_SCHEDULED_TIMER_HANDLES`).
pub const TIMERS_SWEEP_MIN: usize = 100;

/// The longest wait, in seconds: asyncio's own cap, so that a clock jump cannot park a loop for ever.
pub const WAIT_SECONDS_MAX: u64 = 24 * 3600;

/// Entries of the ready ring whose memory is kept when a burst is over (24 bytes each).
pub const READY_KEPT: usize = 16 * 1024;
