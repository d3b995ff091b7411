//! The crate's limits, each with its unit and its reason.
//!
//! Owns: constants, public for applications to read. Called by: the file that each is about.

use std::time::Duration;

/// Usable bytes of a stack by default: enough for deep formatting and a debug build's frames. A
/// page costs memory once it is touched.
pub const STACK_BYTES: usize = 128 * 1024;

/// The smallest stack in bytes: a panic formats and prints its message in this much.
pub const STACK_BYTES_MIN: usize = 16 * 1024;

/// The largest stack in bytes.
pub const STACK_BYTES_MAX: usize = 1 << 30;

/// Bytes of a stack, beside the usable ones, in which Windows handles its overflow: what std reserves
/// on its threads.
pub const STACK_BYTES_GUARANTEED: usize = 20 * 1024;

/// Stacks in the first slab of a worker; each slab is twice the one before.
pub const SLAB_STACKS_MIN: usize = 16;

/// The most stacks in a slab.
pub const SLAB_STACKS_MAX: usize = 1024;

/// Free stacks that keep their pages.
pub const STACKS_KEPT: usize = 1024;

/// Coroutines that one turn of a worker's loop resumes before the driver is polled.
pub const RESUMES_PER_TURN: usize = 256;

/// For how many of them a yield counts: what yields may compute for long, and timers wait for it.
pub const RESUMES_PER_YIELD: usize = 16;

/// The most bytes that an operation on a stream copies. A longer write, or a read after one this
/// long, waits for readiness and copies by a system call, while the data is warm.
pub const COPIED_BYTES_MAX: usize = 16 * 1024;

/// Calls on sockets and channels that a thread's coroutines may make without waiting before the
/// others and the driver have their turn. A prime: a program that calls in rounds yields at another
/// of its calls each time, and so also between its receive and its send, where a waiter can take
/// the room or the value.
pub const CALLS_PER_TURN: u32 = 61;

/// Failed tries after which a mutex is handed to its first waiter. In a loom model, one.
pub const LOCK_FAILED_TRIES_MAX: u32 = if cfg!(loom) { 1 } else { 32 };

/// How long a worker that ends waits for the next of its coroutines to end: for what destructors
/// have begun, for a scope's coroutines on other workers, for the kernel to release lent memory.
/// After that the process is aborted if other workers or the kernel may still use memory of the
/// thread, else the stacks of the coroutines that wait are abandoned.
pub const SHUTDOWN_STALL_MAX: Duration = Duration::from_secs(5);

/// How often it checks.
pub const SHUTDOWN_PAUSE: Duration = Duration::from_micros(100);

/// The most bytes of a file that one operation reads or writes, through a buffer of its own.
pub const FILE_BYTES_MAX: usize = 256 * 1024;

/// Distances from their tops at which stacks begin; see [`STACK_COLOUR_BYTES`].
pub const STACK_COLOURS: usize = 16;

/// Bytes between two such distances: two cache lines. All of them leave a parked coroutine half of
/// its first page.
pub const STACK_COLOUR_BYTES: usize = 128;
