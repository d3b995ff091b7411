//! Signals as readable descriptors.
//!
//! Owns: the choice of form, at compile time. Called by: `signal`.

#[cfg(unix)]
mod posix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use posix::Listener;
#[cfg(windows)]
pub use windows::Listener;
