//! Apple's systems: macOS 11 and newer.

mod files;
mod sockets;

pub use files::*;
pub use sockets::*;

pub use super::bsd::*;

use std::ffi::{c_int, c_void};

/// The clock of Rust's `Instant` and Python's `time.monotonic()`: it stops while the machine sleeps.
pub const CLOCK_MONOTONIC: libc::clockid_t = libc::CLOCK_UPTIME_RAW;
/// The call of [`exclude_from_fork`].
pub const EXCLUDE_FROM_FORK: &str = "minherit";
/// The major number of `/dev/null` and `/dev/zero`.
pub const MEMORY_DEVICES: u32 = 3;

/// minherit(2), `VM_INHERIT_NONE`.
///
/// # Safety
/// The range is a mapping of the caller's.
pub unsafe fn exclude_from_fork(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { libc::minherit(at, len, libc::VM_INHERIT_NONE as c_int) }
}
