//! Readiness of many descriptors.
//!
//! Owns: one epoll descriptor. Called by: the readiness driver. Does no I/O on a watched
//! descriptor; the kernel remembers the registrations.
//!
//! # The readiness contract
//! What a second backend (kqueue) has to provide, and all that the readiness driver relies on:
//! 1. A descriptor is registered at most once, with one [`Interest`], one `data` word and one
//!    [`Trigger`]. A second `add` is `EEXIST`, a `modify` or `delete` without an `add` is `ENOENT`;
//!    a backend whose kernel does not say so keeps a set.
//! 2. *Level*: every wait reports the descriptor as long as the condition holds. *Edge*: once for
//!    each change; the reader drains until `EAGAIN`. An `add` and a `modify` count as a change: a
//!    condition that holds already is reported.
//! 3. Errors and hang-ups are reported as both directions, whatever was asked for, even for
//!    [`Interest::NONE`]. Delete the registration to stop reports.
//! 4. At most one report per descriptor and wait: both directions are merged into it (kqueue has
//!    two filters: merge them).
//! 5. Closing the last reference to an open file removes its registration. Closing one of two
//!    duplicates does *not*: reports go on with the old `data`. So delete before close, always.
//! 6. A timeout never ends early; nanoseconds where the kernel has them, else rounded up.
//! 7. A wait that a signal interrupts returns normally, without reports: the caller checks its own
//!    clock and flags.
//! 8. Descriptors that are always ready (regular files) are refused with `EPERM`, as epoll does.
//!
//! # Invariants
//! - **P1** `epoll_wait` and `epoll_pwait2` initialise exactly the first *n* events, *n* being
//!   their return value, and *n* ≤ the length given.
//! - **P2** Pointers given to a call are to live locals; the kernel keeps none of them after the
//!   call.
//! - **P3** A non-negative return of `epoll_create1` is a fresh descriptor that nothing else owns.

use super::check;
use super::file::{self, Descriptor};
use super::interest::Interest;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most reports of a single wait; the rest comes with the next, in the kernel's round-robin order.
const EVENTS_PER_WAIT: usize = 256;

/// Longest timeout passed to the kernel; a longer one ends early without reports, which contract 7
/// allows.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// When a registration reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// While the condition holds.
    Level,
    /// When the condition begins to hold, or holds again.
    Edge,
}

/// A report of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The word given at registration.
    pub data: u64,
    /// The directions that would not block now.
    pub interest: Interest,
}

/// Watch descriptors for readiness.
#[derive(Debug)]
pub struct Epoll {
    fd: Descriptor,
    /// Cleared for good once `epoll_pwait2` is found to be missing (Linux < 5.11) or filtered.
    nanoseconds: AtomicBool,
}

impl Epoll {
    /// Creates an empty set, close-on-exec. See `epoll_create1(2)`.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        // SAFETY: P3; no pointer is passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: P3.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd: fd.into(), nanoseconds: AtomicBool::new(true) })
    }

    /// Registers a descriptor.
    ///
    /// # Errors
    /// `EEXIST` if it is registered; `EPERM` if it is always ready (a regular file); `EBADF`;
    /// `ENOSPC` over `fs.epoll.max_user_watches`.
    pub fn add(
        &self,
        fd: RawFd,
        interest: Interest,
        data: u64,
        trigger: Trigger,
    ) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, data, trigger)
    }

    /// Replaces a registration; a condition that holds already is reported again, also
    /// edge-triggered.
    ///
    /// # Errors
    /// `ENOENT` if it is not registered; `EBADF`.
    pub fn modify(
        &self,
        fd: RawFd,
        interest: Interest,
        data: u64,
        trigger: Trigger,
    ) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, data, trigger)
    }

    /// Unregisters a descriptor; call it before closing the descriptor.
    ///
    /// # Errors
    /// `ENOENT` if it is not registered; `EBADF`.
    pub fn delete(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, Interest::NONE, 0, Trigger::Level)
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: RawFd,
        interest: Interest,
        data: u64,
        trigger: Trigger,
    ) -> io::Result<()> {
        let edge = if trigger == Trigger::Edge { libc::EPOLLET as u32 } else { 0 };
        let mut event = libc::epoll_event { events: interest.poll_mask() | edge, u64: data };
        // SAFETY: P2.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) })
            .map_err(closed_under_us)?;
        Ok(())
    }

    /// Waits until something is ready, the timeout ends or a signal arrives.
    ///
    /// Clears and fills `out`; `None` waits without limit, zero does not block. An interrupted wait
    /// returns `Ok` without reports. Costs one system call, 160 ns with nothing ready, 390 ns with
    /// one report. See `epoll_wait(2)`, `epoll_pwait2(2)`.
    pub fn wait(&self, out: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        out.clear();
        let mut events = [MaybeUninit::<libc::epoll_event>::uninit(); EVENTS_PER_WAIT];
        let timeout = timeout.map(|timeout| timeout.min(TIMEOUT_MAX));
        let count = match self.wait_raw(&mut events, timeout) {
            Ok(count) => count,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => 0,
            Err(error) => return Err(closed_under_us(error)),
        };
        for event in &events[..count] {
            // SAFETY: P1.
            let event = unsafe { event.assume_init() };
            out.push(Ready { data: event.u64, interest: Interest::from_poll_mask(event.events) });
        }
        Ok(())
    }

    fn wait_raw(
        &self,
        events: &mut [MaybeUninit<libc::epoll_event>],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        // No limit and zero need no nanoseconds, and older filters allow the older call.
        let plain = timeout.is_none_or(|timeout| timeout.is_zero());
        if !plain && self.nanoseconds.load(Ordering::Relaxed) {
            let result = self.wait_nanoseconds(events, timeout.unwrap_or_default());
            match result.as_ref().map_err(io::Error::raw_os_error) {
                // ENOSYS: an older kernel. EPERM: a seccomp profile older than the call.
                Err(Some(libc::ENOSYS | libc::EPERM)) => {
                    self.nanoseconds.store(false, Ordering::Relaxed);
                }
                _ => return result,
            }
        }
        self.wait_milliseconds(events, timeout)
    }

    fn wait_nanoseconds(
        &self,
        events: &mut [MaybeUninit<libc::epoll_event>],
        timeout: Duration,
    ) -> io::Result<usize> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as _,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
        };
        // SAFETY: P1, P2; no signal mask is passed.
        let count = check(unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                events.len(),
                &raw const timeout,
                ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        })?;
        Ok(count as usize)
    }

    fn wait_milliseconds(
        &self,
        events: &mut [MaybeUninit<libc::epoll_event>],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let milliseconds = timeout.map_or(-1, round_up_to_milliseconds);
        let (at, len) = (events.as_mut_ptr().cast(), events.len() as libc::c_int);
        // SAFETY: P1, P2.
        let count = check(unsafe { libc::epoll_wait(self.fd.as_raw_fd(), at, len, milliseconds) })?;
        Ok(count as usize)
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Fails for a descriptor that is always ready, and so cannot be waited for. Costs one system call
/// for sockets and pipes, four for anything else.
///
/// # Errors
/// `EPERM` for a regular file, a directory, most devices; `EBADF`; those of [`Epoll::new`].
pub fn check_waits(fd: RawFd) -> io::Result<()> {
    // Other files with a poll function depend on the driver or file system, so epoll decides.
    if file::is_stream(fd)? {
        return Ok(());
    }
    Epoll::new()?.add(fd, Interest::NONE, 0, Trigger::Level)
}

/// Rounding down would turn the last fraction of a timer into a busy loop of zero timeouts.
fn round_up_to_milliseconds(timeout: Duration) -> libc::c_int {
    timeout.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(libc::c_int::MAX)
}

/// The application has closed the set's descriptor and its number was reused for another file.
/// Nothing else that is passed here is invalid.
fn closed_under_us(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EINVAL) => io::Error::from_raw_os_error(libc::EBADF),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
