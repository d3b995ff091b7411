//! The items of the C library that the engine names.
//!
//! Owns: the choice of library, at compile time: the system's own on Unix; on Windows the items of that
//! name in `windows/`. Called by: the files of this layer; layers above it name constants and structures
//! alone.

#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use ::libc::*;
#[cfg(windows)]
pub use windows::*;
