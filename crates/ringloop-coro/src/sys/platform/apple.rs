//! Apple's systems.

use std::ffi::c_int;

/// Stacks are plain memory.
pub const MAP_STACK: c_int = 0;
/// A guard is a mapping of its own.
pub const GUARD: Option<c_int> = None;
/// There are no huge pages that come unasked.
pub const NO_HUGE_PAGES: Option<c_int> = None;
/// Frees pages, when memory is short.
pub const DISCARD: c_int = libc::MADV_FREE;
/// An access to a guard: which of the two depends on the processor.
pub const FAULTS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
