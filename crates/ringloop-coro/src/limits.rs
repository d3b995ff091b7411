//! Every bound of the crate, with its unit and its reason.

use std::time::Duration;

/// Usable bytes of a stack where nobody says otherwise. A page of it costs memory once it was touched; deep
/// formatting and a debug build's frames fit.
pub const STACK_BYTES: usize = 128 * 1024;

/// The smallest stack in bytes: a panic, with its message formatted and printed, needs this much.
pub const STACK_BYTES_MIN: usize = 16 * 1024;

/// The largest stack in bytes.
pub const STACK_BYTES_MAX: usize = 1 << 30;

/// Stacks in the first slab of a worker; each slab is twice the one before.
pub const SLAB_STACKS_MIN: usize = 16;

/// Stacks in a slab at most.
pub const SLAB_STACKS_MAX: usize = 1024;

/// Free stacks that keep their memory; what comes back beyond gives it to the system.
pub const STACKS_KEPT: usize = 1024;

/// Coroutines that one turn of a worker's loop runs before the driver is asked for completions.
pub const RESUMES_PER_TURN: usize = 256;

/// Bytes that a write of a stream leaves to an operation at most, and above which a read that was that long is followed
/// by readiness and a call: what is large is copied while it is hot. Also of a file's read, through a kept buffer.
pub const COPIED_BYTES_MAX: usize = 16 * 1024;

/// Buffers of that length that a thread keeps for its next reads of files: 4 MiB.
pub const SPARE_BUFFERS_MAX: usize = 256;

/// Calls on sockets and channels that coroutines of a thread may make one after the other without one that waits, before
/// the others and the driver get their turn. A prime: a program that calls in rounds gives way at another of its calls each
/// time, and so also between its receive and its send, where who waits for the place or the value can have it.
pub const CALLS_PER_TURN: u32 = 61;

/// How often the first in the line of a lock is woken in vain before the lock is given to it. In a model of loom's at once.
pub const LOCK_PASSES_MAX: u32 = if cfg!(loom) { 1 } else { 32 };

/// How long a worker of a runtime that ends waits for the next of its coroutines to end: for what destructors have begun, for
/// coroutines of workers that have not ended, those of a scope above all, for the kernel to let go of what was lent to it.
/// Then the process is aborted where such a scope's or the kernel may still use memory of a thread that ends, else the
/// stacks of those that wait are left as they are.
pub const OUTLAST_MAX: Duration = Duration::from_secs(5);

/// How often it looks.
pub const OUTLAST_PAUSE: Duration = Duration::from_micros(100);

/// Bytes of a file that one operation reads or writes at most, through a buffer of its own.
pub const FILE_BYTES_MAX: usize = 256 * 1024;

/// Distances from their tops at which stacks begin; see [`STACK_COLOUR_BYTES`].
pub const STACK_COLOURS: usize = 16;

/// Bytes from one such distance to the next: two cache lines. All of them together leave a parked coroutine half of its
/// first page.
pub const STACK_COLOUR_BYTES: usize = 128;
