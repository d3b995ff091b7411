//! Apple's systems: macOS 11 and newer.
//!
//! A constant that the system lacks has a number of ours. Flags are taken out again before a call; an
//! option is refused by the kernel (`ENOPROTOOPT`).

mod absent;
mod files;
mod sockets;

pub use absent::*;
pub use files::*;
pub use sockets::*;

pub use super::not_linux::*;

use std::ffi::{c_int, c_void};

/// The clock of Rust's `Instant` and Python's `time.monotonic()`: it stops while the machine sleeps.
pub const CLOCK_MONOTONIC: libc::clockid_t = libc::CLOCK_UPTIME_RAW;
/// The call of [`exclude_from_fork`].
pub const EXCLUDE_FROM_FORK: &str = "minherit";
/// Pages are populated when they are touched.
pub const MAP_POPULATE: c_int = 0;

/// minherit(2), `VM_INHERIT_NONE`.
///
/// # Safety
/// The range is a mapping of the caller's.
pub unsafe fn exclude_from_fork(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { libc::minherit(at, len, libc::VM_INHERIT_NONE as c_int) }
}
