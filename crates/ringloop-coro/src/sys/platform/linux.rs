//! Linux.

use std::ffi::c_int;

pub use libc::MAP_STACK;

/// `MADV_GUARD_INSTALL` (madvise(2), Linux 6.13): the range faults on every access, without a
/// mapping of its own.
pub const GUARD: Option<c_int> = Some(102);
/// Keeps huge pages away.
pub const NO_HUGE_PAGES: Option<c_int> = Some(libc::MADV_NOHUGEPAGE);
/// Frees pages, which read as zeros after that.
pub const DISCARD: c_int = libc::MADV_DONTNEED;
/// An access to a guard.
pub const FAULTS: [c_int; 1] = [libc::SIGSEGV];
