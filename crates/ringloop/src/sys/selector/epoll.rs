//! Readiness by epoll(7).
//!
//! Owns: one epoll descriptor; the kernel remembers the registrations.
//!
//! # Invariants
//! - **P1** `epoll_wait` and `epoll_pwait2` initialise exactly the first *n* events, *n* being
//!   their return value, and *n* ≤ the length given.
//! - **P2** Pointers given to a call are to live locals; the kernel keeps none of them after the
//!   call.
//! - **P3** A non-negative return of `epoll_create1` is a fresh descriptor that nothing else owns.

use super::super::check;
use super::super::event::EventFd;
use super::super::file::Descriptor;
use super::super::interest::Interest;
use super::report::{EVENTS_PER_WAIT, Ready, TIMEOUT_MAX, Trigger};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Watches descriptors for readiness.
#[derive(Debug)]
pub struct Selector {
    fd: Descriptor,
    /// Cleared for good once `epoll_pwait2` is found to be missing (Linux < 5.11) or filtered.
    nanoseconds: AtomicBool,
}

impl Selector {
    /// The word for it, in `RINGLOOP_DRIVER` too.
    pub const NAME: &str = "epoll";
    /// The call that creates one.
    pub const CREATE: &str = "epoll_create1";
    /// The call that registers a descriptor.
    pub const REGISTER: &str = "epoll_ctl";

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

    /// Registers what wakes the waiting thread.
    ///
    /// # Errors
    /// Those of [`Selector::add`].
    pub fn add_wake(&self, wake: &EventFd, data: u64) -> io::Result<()> {
        // Edge-triggered: each notification is one event, and the counter need not be read.
        self.add(wake.as_raw_fd(), Interest::READ, data, Trigger::Edge)
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

impl AsRawFd for Selector {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
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
mod tests {
    use super::super::check_waits;
    use super::super::tests::{NOW, readable, wait};
    use super::*;
    use crate::sys::file;
    use crate::sys::testing::{LONG, tcp_pair, with_calls_denied};
    use std::io::Read;
    use std::time::Instant;

    #[test]
    fn contract_6_a_timeout_never_ends_early_with_or_without_nanoseconds() {
        for nanoseconds in [true, false] {
            let selector = Selector::new().unwrap();
            selector.nanoseconds.store(nanoseconds, Ordering::Relaxed);
            for timeout in [1, 300_000, 1_000_001].map(Duration::from_nanos) {
                let start = Instant::now();
                assert_eq!(wait(&selector, Some(timeout)), []);
                assert!(start.elapsed() >= timeout, "{timeout:?} took {:?}", start.elapsed());
            }
        }
        assert_eq!(round_up_to_milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(round_up_to_milliseconds(Duration::from_millis(2)), 2);
        assert_eq!(round_up_to_milliseconds(Duration::from_micros(2001)), 3);
        assert_eq!(round_up_to_milliseconds(Duration::MAX), i32::MAX);
    }

    #[test]
    fn contract_6_the_longest_timeouts_wait() {
        for nanoseconds in [true, false] {
            let (selector, event) = (Selector::new().unwrap(), EventFd::new().unwrap());
            selector.nanoseconds.store(nanoseconds, Ordering::Relaxed);
            selector.add(event.as_raw_fd(), Interest::READ, 2, Trigger::Level).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    event.notify();
                });
                assert_eq!(wait(&selector, Some(Duration::MAX)), readable(2));
            });
            assert_eq!(wait(&selector, None), readable(2));
        }
    }

    #[test]
    fn p2_a_filter_that_denies_the_newer_call_is_worked_around() {
        for errno in [libc::ENOSYS, libc::EPERM] {
            with_calls_denied(&[libc::SYS_epoll_pwait2], errno, || {
                let (selector, event) = (Selector::new().unwrap(), EventFd::new().unwrap());
                selector.add(event.as_raw_fd(), Interest::READ, 4, Trigger::Level).unwrap();
                let start = Instant::now();
                assert_eq!(wait(&selector, Some(Duration::from_micros(1500))), []);
                assert!(start.elapsed() >= Duration::from_micros(1500));
                assert!(!selector.nanoseconds.load(Ordering::Relaxed));
                event.notify();
                assert_eq!(wait(&selector, Some(LONG)), readable(4));
            });
        }
    }

    #[test]
    fn p3_the_descriptor_is_closed_with_the_value_and_on_exec() {
        let selector = Selector::new().unwrap();
        // SAFETY: no pointer is passed.
        let flags = unsafe { libc::fcntl(selector.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        // The set holds the pipe's only other reference: when the set is dropped, the writer is alone.
        let (mut client, server) = tcp_pair();
        selector.add(server.as_raw_fd(), Interest::READ, 1, Trigger::Level).unwrap();
        drop((selector, server));
        client.set_nonblocking(false).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn contract_3_errors_and_hang_ups_come_as_both_directions_even_unasked() {
        let (selector, (reader, writer)) = (Selector::new().unwrap(), file::pipe().unwrap());
        selector.add(reader.as_raw_fd(), Interest::NONE, 5, Trigger::Level).unwrap();
        assert_eq!(wait(&selector, NOW), []);
        drop(writer);
        // A child of another test may have a copy for a moment.
        assert_eq!(wait(&selector, Some(LONG)), [Ready { data: 5, interest: Interest::BOTH }]);
        selector.delete(reader.as_raw_fd()).unwrap();
        assert_eq!(wait(&selector, NOW), []);
    }

    #[test]
    fn contract_5_a_duplicate_keeps_the_registration_alive() {
        let (selector, event) = (Selector::new().unwrap(), EventFd::new().unwrap());
        // SAFETY: no pointer is passed.
        let duplicate = unsafe { libc::dup(event.as_raw_fd()) };
        selector.add(duplicate, Interest::READ, 8, Trigger::Level).unwrap();
        file::close(duplicate).unwrap();
        event.notify();
        assert_eq!(wait(&selector, NOW), readable(8));
        drop(event);
        assert_eq!(wait(&selector, NOW), []);
    }

    #[test]
    fn pollable_file_of_the_kernel_is_no_regular_one() {
        // A regular file by its mode.
        let mounts = std::fs::File::open("/proc/self/mounts").unwrap();
        check_waits(mounts.as_raw_fd()).unwrap();
    }
}
