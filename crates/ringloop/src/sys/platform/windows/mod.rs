//! Windows 10 and newer.
//!
//! A constant that the system lacks has a number of ours, as on Apple's systems. The items of the C
//! library's names are in `sys/libc/windows/`.

mod absent;
mod files;
mod sockets;

pub use absent::*;
pub use files::*;
pub use sockets::*;

pub use super::not_linux::*;

pub use super::super::libc::ETIME;

use super::super::libc::{self, c_int, c_void};

/// The clock of Rust's `Instant` and Python's `time.monotonic()`.
pub const CLOCK_MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;
/// The call of [`exclude_from_fork`].
pub const EXCLUDE_FROM_FORK: &str = "none";
/// True: an error is a number of Windows, which Python calls `winerror`.
pub const ERRORS_ARE_WINDOWS: bool = true;
/// False: `GetProcAddress` of a module finds the module's own functions alone.
pub const SEES_LIBRARIES_OF_MODULES: bool = false;
/// Pages are populated when they are touched.
pub const MAP_POPULATE: c_int = 0;

/// The calling thread's number, for a ring; there is none.
pub fn gettid() -> libc::pid_t {
    0
}

/// There is no fork.
///
/// # Safety
/// None: it touches nothing.
pub unsafe fn exclude_from_fork(_: *mut c_void, _: usize) -> c_int {
    0
}
