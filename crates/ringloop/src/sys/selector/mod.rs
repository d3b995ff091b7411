//! Readiness of many descriptors: one contract, one backend a platform.
//!
//! Owns: the choice of backend, at compile time. Called by: the readiness driver, and the ring's poll
//! of a listener. Does no I/O on a watched descriptor.
//!
//! | backend | file | where |
//! |---|---|---|
//! | epoll | `epoll.rs` | Linux |
//! | AFD | `afd.rs` | Windows |
//! | kqueue | `kqueue.rs` | Apple's systems, FreeBSD; on Linux with `--cfg libkqueue`, for tests |
//!
//! # The readiness contract
//! What a backend has to provide, and all that the readiness driver relies on:
//! 1. A descriptor is registered at most once, with one [`Interest`], one `data` word and one
//!    [`Trigger`]. A second `add` is `EEXIST`, a `modify` or `delete` without an `add` is `ENOENT`;
//!    a backend whose kernel does not say so keeps a set.
//! 2. *Level*: every wait reports the descriptor as long as the condition holds. *Edge*: once for
//!    each change; the reader drains until `EAGAIN`, and calls `rearm` before it waits again: where
//!    `NEEDS_REARM` says so a direction is reported only once until then, but a condition that holds
//!    then is reported. An `add` and a `modify` count as a change: a condition that holds already is
//!    reported.
//! 3. Errors are reported as both directions, whatever was asked for. So is a hang-up, unless the
//!    kernel reports it for each direction. Delete the registration to stop reports. Reports for
//!    [`Interest::NONE`] are optional.
//! 4. At most one report per descriptor and wait: both directions are merged into it.
//! 5. Closing the last reference to an open file removes its registration. Closing one of two
//!    duplicates does not everywhere: reports go on with the old `data`. So delete before close,
//!    always.
//! 6. A timeout never ends early; nanoseconds where the kernel has them, else rounded up.
//! 7. A wait that a signal interrupts returns normally, without reports: the caller checks its own
//!    clock and flags.
//! 8. Descriptors that are always ready (regular files) are refused with `EPERM`, as epoll does.
//! 9. A notification of the [`EventFd`](super::event::EventFd) that was given to `add_wake` ends one
//!    wait at least, the next one if none is under way. The
//!    driver does not drain it; none is lost.

#[cfg(windows)]
mod afd;
#[cfg(all(target_os = "linux", not(libkqueue)))]
mod epoll;
#[cfg(any(target_vendor = "apple", target_os = "freebsd", libkqueue))]
mod kqueue;
mod report;

#[cfg(windows)]
pub use afd::Selector;
#[cfg(all(target_os = "linux", not(libkqueue)))]
pub use epoll::Selector;
#[cfg(any(target_vendor = "apple", target_os = "freebsd", libkqueue))]
pub use kqueue::Selector;
pub use report::{Ready, Trigger};

use super::file;
use super::interest::Interest;
use super::socket::is_exhaustion;
use crate::sys::fd::RawFd;
use std::io;

#[cfg(not(windows))]
impl Selector {
    /// Whether edge triggers depend on [`Selector::rearm`].
    pub const NEEDS_REARM: bool = false;

    /// Nothing: the kernel itself knows the changes.
    #[inline(always)]
    pub fn rearm(&self, _fd: RawFd, _interest: Interest) {}

    /// None: operations complete at no port.
    pub fn completions(&self) -> RawFd {
        -1
    }

    /// None.
    pub fn take_completions(&self) -> Vec<usize> {
        Vec::new()
    }
}

/// Fails for a descriptor that is always ready, and so cannot be waited for. Costs one system call
/// for sockets and pipes, four for anything else. Without a descriptor or memory for the check it
/// succeeds: the wait itself will fail.
///
/// # Errors
/// `EPERM` for a regular file, a directory, most devices; `EBADF`.
pub fn check_waits(fd: RawFd) -> io::Result<()> {
    // Other files with a poll function depend on the driver or file system, so the backend decides.
    if file::is_stream(fd)? {
        return Ok(());
    }
    let tried = Selector::new().and_then(|set| set.add(fd, Interest::NONE, 0, Trigger::Level));
    match tried {
        Err(error) if is_exhaustion(&error) => Ok(()),
        tried => tried,
    }
}

#[cfg(test)]
mod tests;
