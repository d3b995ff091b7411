//! What systems differ in: advice for the memory of stacks, and the signals of an invalid access.
//!
//! Owns: the choice of platform, at compile time.

#[cfg(target_vendor = "apple")]
mod apple;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_vendor = "apple")]
pub(super) use apple::*;
#[cfg(target_os = "linux")]
pub(super) use linux::*;
