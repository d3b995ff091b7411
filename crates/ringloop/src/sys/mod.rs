//! Layer 1: the kernel boundary.
//!
//! Owns: every system call of the engine, every structure shared with the kernel, and the unsafe
//! code that both need. Called by: the drivers and the operations. Waits only when asked to,
//! remembers no operation, and knows nothing of the layers above.
//!
//! Descriptors are plain numbers ([`fd::RawFd`]). A completion ring may use a descriptor
//! long after the call that named it returned, so a borrow could not express its lifetime; the
//! operation table does that. A wrong number is an `EBADF`, never undefined behaviour.
//!
//! No wrapper retries or interprets: an [`std::io::Error`] from here carries the kernel's errno. The
//! exceptions are documented (an interrupted close, an interrupted wait).

pub mod address;
#[cfg(windows)]
mod afd;
pub mod clock;
mod control;
pub mod datagram;
pub mod descriptors;
pub mod event;
pub mod fd;
pub mod file;
pub mod fork;
pub mod interest;
#[cfg(any(target_vendor = "apple", target_os = "freebsd", libkqueue))]
mod kqueue;
pub mod libc;
pub mod memory;
pub mod path;
pub mod platform;
pub mod pool;
pub mod private;
pub mod process;
pub mod refused;
pub mod reserve;
pub mod selector;
pub mod signal;
pub mod socket;
pub mod storage;
pub mod thread;
pub mod uring;

#[cfg(test)]
mod testing;

use std::io;

/// Converts the kernel's "negative means look at errno" into a `Result`.
fn check<T: PartialOrd + Default>(result: T) -> io::Result<T> {
    if result < T::default() { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// True if a system call failed because a filter (seccomp) denies it or the kernel lacks it.
/// `probe` makes the same call without a descriptor to find out. An older equivalent may still be
/// allowed. `EPERM` may also come from a firewall, and `EACCES` from the network.
fn is_refused<T>(error: &io::Error, probe: impl FnOnce() -> io::Result<T>) -> bool {
    let may_be = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EACCES));
    may_be && probe().is_err_and(|error| error.raw_os_error() != Some(libc::EBADF))
}
