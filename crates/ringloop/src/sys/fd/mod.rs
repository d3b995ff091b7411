//! Descriptors as types, under the names of `std::os::fd`.
//!
//! Owns: the choice of form, at compile time: std's own types on Unix; on Windows handles in 32 bits. Called
//! by: everything that names a descriptor. Makes no system call but to close one.

#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use std::os::fd::*;
#[cfg(unix)]
pub use std::os::unix::net as unix_net;
#[cfg(windows)]
pub use windows::*;
