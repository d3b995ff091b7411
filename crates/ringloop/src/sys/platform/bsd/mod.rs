//! What Apple's systems and FreeBSD have alike.
//!
//! A constant that the system lacks has a number of ours. Flags are taken out again before a call; an
//! option is refused by the kernel (`ENOPROTOOPT`).

mod absent;
mod files;

pub use absent::*;
pub use files::*;

pub use super::not_linux::*;

use std::ffi::c_int;

/// Pages are populated when they are touched.
pub const MAP_POPULATE: c_int = 0;
/// The error of a wait that has ended, which only the ring has.
pub const ETIME: c_int = libc::ETIMEDOUT;
