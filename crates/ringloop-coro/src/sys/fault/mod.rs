//! The handler of invalid memory accesses.
//!
//! Owns: the choice of platform, at compile time. Called by: `overflow`.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::install;
#[cfg(windows)]
pub(crate) use windows::install;

/// Explains the fault at an address, by its second argument; `false` for a fault that is not ours.
pub(crate) type Explain = fn(address: usize, write: fn(&[u8])) -> bool;
