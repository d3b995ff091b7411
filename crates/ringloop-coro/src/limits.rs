//! Every bound of the crate, with its unit and its reason.

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
