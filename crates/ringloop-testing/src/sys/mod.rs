//! What the tests ask the system for.

#[cfg(unix)]
pub mod fork;
#[cfg(unix)]
pub mod refusal;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;
