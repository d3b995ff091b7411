//! A child process as a descriptor, and the limits of this one.
//!
//! Owns: the choice of form, at compile time: a pidfd on Linux, a kqueue elsewhere; it is returned as
//! an [`OwnedFd`](crate::sys::fd::OwnedFd). Called by: `process` and the operation that waits for a child.
//! Does not reap; the child's owner takes its status.
//!
//! # Invariants
//! - **H3** `getrlimit` writes one `rlimit` through a pointer to a live local.

#[cfg(any(target_vendor = "apple", target_os = "freebsd", libkqueue))]
mod kqueue;
#[cfg(all(target_os = "linux", not(libkqueue)))]
mod pidfd;
#[cfg(windows)]
mod windows;
#[cfg(unix)]
mod zombie;

#[cfg(any(target_vendor = "apple", target_os = "freebsd", libkqueue))]
pub use kqueue::{has_ended, pidfd_open};
#[cfg(all(target_os = "linux", not(libkqueue)))]
pub use pidfd::{has_ended, pidfd_open};
#[cfg(windows)]
pub use windows::{has_ended, pidfd_open};

use crate::sys::libc;
use std::mem::MaybeUninit;

/// The type of `RLIMIT_*`, on which the C libraries disagree.
#[cfg(all(unix, target_env = "gnu"))]
pub(super) type Resource = libc::__rlimit_resource_t;
/// The type of `RLIMIT_*`, on which the C libraries disagree.
#[cfg(not(all(unix, target_env = "gnu")))]
pub(super) type Resource = libc::c_int;

/// A soft limit of the process, one of `RLIMIT_*`; [`u64::MAX`] means no limit. See getrlimit(2).
pub(super) fn soft_limit(resource: Resource) -> u64 {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: H3.
    unsafe { libc::getrlimit(resource, limit.as_mut_ptr()) };
    // SAFETY: H3; all-zero bytes are a valid `rlimit` even if the call failed.
    let limit = unsafe { limit.assume_init() };
    // Signed on FreeBSD.
    if limit.rlim_cur == libc::RLIM_INFINITY { u64::MAX } else { limit.rlim_cur as _ }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/self/limits` shows the same numbers.
    fn by_proc(name: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        match line[name.len()..].split_whitespace().next().unwrap() {
            "unlimited" => u64::MAX,
            number => number.parse().unwrap(),
        }
    }

    #[test]
    fn h3_limits_agree_with_proc() {
        assert_eq!(soft_limit(libc::RLIMIT_NOFILE), by_proc("Max open files"));
        assert_eq!(soft_limit(libc::RLIMIT_MEMLOCK), by_proc("Max locked memory"));
    }
}
