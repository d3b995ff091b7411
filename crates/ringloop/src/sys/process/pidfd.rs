//! A child as a pidfd.
//!
//! # Invariants
//! - **H1** A non-negative return of `pidfd_open` is a fresh descriptor that nothing else owns.

use super::super::check;
use super::super::platform;
use super::zombie::is_zombie;
use std::io;
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
    is_zombie(platform::P_PIDFD, pidfd as libc::id_t)
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
}
