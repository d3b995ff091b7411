//! Layer 1: the kernel boundary.
//!
//! Owns: every system call of the engine, every structure shared with the kernel, and the unsafe
//! code that both need. Called by: the drivers and the operations, which decide *what* to ask for.
//! Never does: waiting on its own accord, remembering an operation, or knowing that anything above
//! it exists.
//!
//! | module | the one thing it is about |
//! |---|---|
//! | [`clock`] | the monotonic clock, in nanoseconds |
//! | [`event`] | a descriptor that another thread writes to wake a sleeping loop |
//! | [`interest`] | what a descriptor is watched for: reading, writing |
//! | [`epoll`] | readiness of many descriptors, and the contract a second backend has to meet |
//! | [`address`] | socket addresses in the kernel's own form |
//! | [`socket`] | sockets: create, connect, accept, move bytes, options |
//! | [`datagram`] | many datagrams in one system call |
//! | [`mod@file`] | descriptors in general: read, write, close, pipe, poll once |
//! | [`storage`] | regular files: vectors at an offset, sync, space, splice |
//! | [`path`] | files by their names: open, metadata, rename, remove |
//! | [`memory`] | memory mappings, and whether a forked child has them |
//! | [`mod@thread`] | the calling thread: its processors, its signals |
//! | [`descriptors`] | descriptors on their way through a Unix socket |
//! | [`process`] | a child as a descriptor, the limits of the process |
//! | [`signal`] | signals as readable descriptors |
//! | [`refused`] | a call that a loop needs and that was refused: name, cause and remedy |
//! | [`fork`] | which process a value was made in |
//! | [`reserve`] | an allocator that has a little left when the system has nothing |
//! | [`uring`] | the ring: its ABI, its queues, its buffer rings, and why it may be refused |
//!
//! Descriptors arrive as plain numbers ([`std::os::fd::RawFd`]). A completion ring may use a
//! descriptor long after the call that named it returned, so a borrow could not express who keeps
//! it open; the operation table does that. A wrong number is an `EBADF`, never undefined behaviour.
//!
//! No wrapper retries or interprets: an [`std::io::Error`] from here carries the errno the kernel
//! gave. The exceptions are named where they stand (a close that was interrupted, a wait that was
//! interrupted).

pub mod address;
pub mod clock;
pub mod datagram;
pub mod descriptors;
pub mod epoll;
pub mod event;
pub mod file;
pub mod fork;
pub mod interest;
pub mod memory;
pub mod path;
pub mod process;
pub mod refused;
pub mod reserve;
pub mod signal;
pub mod socket;
pub mod storage;
pub mod thread;
pub mod uring;

#[cfg(test)]
mod testing;

use std::io;

/// Turn the kernel's "negative means look at errno" into a `Result`.
fn check<T: PartialOrd + Default>(result: T) -> io::Result<T> {
    if result < T::default() {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Whether a system call failed because a filter (seccomp) or the kernel does not have it, which `probe` finds out: the
/// same call without a descriptor. Its plainer kin may still pass. `EPERM` may as well be a firewall's, and `EACCES` an
/// answer of the network's.
fn is_refused<T>(error: &io::Error, probe: impl FnOnce() -> io::Result<T>) -> bool {
    let may_be = matches!(
        error.raw_os_error(),
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES)
    );
    may_be && probe().is_err_and(|error| error.raw_os_error() != Some(libc::EBADF))
}
