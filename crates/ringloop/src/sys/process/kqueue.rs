//! A child as a kqueue of its own, which has a report when the child has ended.
//!
//! The kernel reports the end once. So the first look that finds it leaves a user event in its place,
//! and the descriptor stays readable, as a pidfd does.
//!
//! Source: kqueue(2), `EVFILT_PROC`, `EVFILT_USER`.

use super::super::kqueue::{self, Change};
use super::zombie::is_zombie;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Opens a close-on-exec descriptor for a child that has not been reaped.
///
/// # Errors
/// `ESRCH` no such process, `EMFILE`, `ENFILE`.
#[allow(clippy::cast_lossless, reason = "`id_t` has 64 bits on FreeBSD alone")]
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    let queue = kqueue::create()?;
    match kqueue::apply(queue.as_raw_fd(), [Change::process_end(pid)]) {
        // The kernel does not watch a child that has ended already.
        Err(error)
            if error.raw_os_error() == Some(libc::ESRCH)
                && is_zombie(libc::P_PID, pid as _).is_ok_and(|ended| ended) =>
        {
            kqueue::apply(queue.as_raw_fd(), Change::sticky())?;
        }
        done => done?,
    }
    Ok(queue)
}

/// True if a child has ended; does not reap it.
///
/// # Errors
/// `EBADF`.
pub fn has_ended(pidfd: RawFd) -> io::Result<bool> {
    let mut ended = false;
    kqueue::wait(pidfd, Some(Duration::ZERO), |_| ended = true)?;
    if ended {
        kqueue::apply(pidfd, Change::sticky())?;
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::LONG;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn end_of_a_child_shows_at_its_queue_and_stays_there() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let queue = pidfd_open(child.id()).unwrap();
        assert!(!has_ended(queue.as_raw_fd()).unwrap());
        child.kill().unwrap();
        let started = Instant::now();
        while !has_ended(queue.as_raw_fd()).unwrap() {
            assert!(started.elapsed() < LONG);
            std::thread::yield_now();
        }
        assert!(has_ended(queue.as_raw_fd()).unwrap());
        assert!(child.try_wait().unwrap().is_some(), "it was still to be reaped");
        assert!(has_ended(queue.as_raw_fd()).unwrap());
    }

    #[test]
    fn child_that_has_ended_before_is_seen() {
        let mut child = Command::new("true").spawn().unwrap();
        let started = Instant::now();
        while !is_zombie(libc::P_PID, child.id() as libc::id_t).unwrap() {
            assert!(started.elapsed() < LONG);
            std::thread::yield_now();
        }
        let queue = pidfd_open(child.id()).unwrap();
        while !has_ended(queue.as_raw_fd()).unwrap() {
            assert!(started.elapsed() < LONG);
        }
        child.wait().unwrap();
    }

    #[test]
    fn what_is_no_process_is_an_error() {
        let absent = pidfd_open(0x3FFF_FFFF).unwrap_err();
        // libkqueue has one errno for all registrations that fail, and another for what is no queue.
        assert!(matches!(absent.raw_os_error(), Some(libc::ESRCH | libc::EFAULT)));
        let wrong = has_ended(-1).unwrap_err();
        assert!(matches!(wrong.raw_os_error(), Some(libc::EBADF | libc::ENOENT)));
    }
}
