//! A child process as a descriptor, and the limits of this one.
//!
//! Owns: nothing; a pidfd is returned as an [`OwnedFd`]. Called by: `process` and the operation
//! that waits for a child. Does not reap; the child's owner takes its status.
//!
//! # Invariants
//! - **H1** A non-negative return of `pidfd_open` is a fresh descriptor that nothing else owns.
//! - **H2** All-zero bytes are a valid `siginfo_t`; the pointer given to `waitid` is to a live local.
//! - **H3** `getrlimit` writes one `rlimit` through a pointer to a live local.

use super::check;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Opens a close-on-exec descriptor for a child that has not been reaped. See `pidfd_open(2)`.
///
/// # Errors
/// `ESRCH` no such process, `EMFILE`, `ENFILE`, `ENOSYS` before Linux 5.3.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: H1; no pointer is passed.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) })?;
    // SAFETY: H1.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// True if a child has ended, without reaping it. See waitid(2), `P_PIDFD` since Linux 5.4.
///
/// # Errors
/// `ECHILD` if it is no child of this process, or has been reaped.
pub fn has_ended(pidfd: RawFd) -> io::Result<bool> {
    // SAFETY: H2.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: H2.
    check(unsafe { libc::waitid(libc::P_PIDFD, pidfd as libc::id_t, &raw mut info, options) })?;
    // Without a child that has ended, the kernel writes zeros.
    Ok(info.si_signo != 0)
}

/// The type of `RLIMIT_*`, on which the C libraries disagree.
#[cfg(target_env = "gnu")]
pub(super) type Resource = libc::__rlimit_resource_t;
/// The type of `RLIMIT_*`, on which the C libraries disagree.
#[cfg(not(target_env = "gnu"))]
pub(super) type Resource = libc::c_int;

/// A soft limit of the process, one of `RLIMIT_*`; [`u64::MAX`] means no limit. See getrlimit(2).
pub(super) fn soft_limit(resource: Resource) -> u64 {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: H3.
    unsafe { libc::getrlimit(resource, limit.as_mut_ptr()) };
    // SAFETY: H3; all-zero bytes are a valid `rlimit` even if the call failed.
    let limit = unsafe { limit.assume_init() };
    if limit.rlim_cur == libc::RLIM_INFINITY { u64::MAX } else { limit.rlim_cur }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::file::poll_now;
    use crate::sys::interest::Interest;
    use crate::sys::testing::LONG;
    use std::os::fd::AsRawFd;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn h1_a_child_that_ended_shows_at_its_descriptor_and_is_still_to_be_reaped() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pidfd = pidfd_open(child.id()).unwrap();
        // SAFETY: no pointer is passed.
        let flags = unsafe { libc::fcntl(pidfd.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        assert!(!has_ended(pidfd.as_raw_fd()).unwrap());
        child.kill().unwrap();
        let started = Instant::now();
        while poll_now(pidfd.as_raw_fd(), Interest::READ).unwrap() == Interest::NONE {
            assert!(started.elapsed() < LONG);
            std::thread::yield_now();
        }
        assert!(has_ended(pidfd.as_raw_fd()).unwrap());
        assert!(child.try_wait().unwrap().is_some());
        let reaped = has_ended(pidfd.as_raw_fd()).unwrap_err();
        assert_eq!(reaped.raw_os_error(), Some(libc::ECHILD));
    }

    #[test]
    fn h2_what_is_no_process_is_an_error() {
        let absent = pidfd_open(0x3FFF_FFFF).unwrap_err();
        assert!(matches!(absent.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)));
        let wrong = has_ended(-1).unwrap_err();
        assert!(matches!(wrong.raw_os_error(), Some(libc::EBADF | libc::EINVAL)));
    }

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
