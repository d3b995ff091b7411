//! kqueue(2): an event queue, and the changes and reports that go through it.
//!
//! Owns: nothing; a queue is returned as an [`OwnedFd`]. Called by: the selector, and what stands for a
//! pidfd. Remembers no registration. `abi.rs` has the structure and the numbers: the C library's, or for tests on Linux
//! those of libkqueue, which does the same with epoll.
//!
//! # Invariants
//! - **Q1** `kevent` initialises exactly the first *n* reports, *n* being its return value, and *n* ≤
//!   the length given; it reads exactly the changes given. Both are live for the call.
//! - **Q2** A non-negative return of `kqueue` is a fresh descriptor that nothing else owns.

mod abi;

use super::check;
use super::file;
use abi::RawEvent;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

/// Most reports of a single wait.
pub const REPORTS_PER_WAIT: usize = 256;

/// Most changes of a call: both filters of a descriptor deleted, and added again.
pub const CHANGES_MAX: usize = 4;

/// What a queue reports of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// It can be read, or accepted from.
    Read,
    /// It can be written.
    Write,
}

impl Filter {
    fn raw(self) -> i16 {
        match self {
            Self::Read => abi::EVFILT_READ,
            Self::Write => abi::EVFILT_WRITE,
        }
    }
}

/// A change of what a queue reports.
#[derive(Clone, Copy)]
pub struct Change(RawEvent);

/// A report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The number of the descriptor or process.
    pub ident: usize,
    /// The filter; `None` for the end of a process and for a user event.
    pub filter: Option<Filter>,
    /// The descriptor's error, or 0.
    pub errno: i32,
}

impl Change {
    /// Reports a descriptor: with `edge` at each change, without as long as the condition holds.
    pub fn add(fd: RawFd, filter: Filter, edge: bool) -> Self {
        let flags = abi::EV_ADD | if edge { abi::EV_CLEAR } else { 0 };
        Self(abi::event(fd as usize, filter.raw(), flags, 0))
    }

    /// Ends the reports of a descriptor.
    pub fn delete(fd: RawFd, filter: Filter) -> Self {
        Self(abi::event(fd as usize, filter.raw(), abi::EV_DELETE, 0))
    }

    /// Reports the end of a process, once.
    pub fn process_end(pid: u32) -> Self {
        let flags = abi::EV_ADD | abi::EV_ONESHOT;
        Self(abi::event(pid as usize, abi::EVFILT_PROC, flags, abi::NOTE_EXIT))
    }

    /// A user event that every wait reports from now on.
    pub fn sticky() -> [Self; 2] {
        [
            Self(abi::event(0, abi::EVFILT_USER, abi::EV_ADD, 0)),
            Self(abi::event(0, abi::EVFILT_USER, 0, abi::NOTE_TRIGGER)),
        ]
    }
}

/// Creates an empty queue, close-on-exec. A forked child does not inherit it.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`.
pub fn create() -> io::Result<OwnedFd> {
    // SAFETY: Q2; no pointer is passed.
    let fd = check(unsafe { abi::kqueue() })?;
    // SAFETY: Q2.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    file::set_close_on_exec(fd.as_raw_fd())?;
    Ok(fd)
}

/// Makes changes, at most [`CHANGES_MAX`], in order, in one call.
///
/// A delete of what is not registered is no error, as closing a descriptor deletes too. Nor is `EPIPE`:
/// macOS says so of a pipe whose other end is closed, and reports it all the same (mio does this too).
///
/// # Errors
/// The first of the changes': `EBADF`, `EINVAL` for a descriptor without such a filter, `ESRCH`, `ENOMEM`;
/// the later changes have been made.
pub fn apply(queue: RawFd, changes: impl IntoIterator<Item = Change>) -> io::Result<()> {
    let mut events = [abi::event(0, 0, 0, 0); CHANGES_MAX];
    let mut count = 0;
    for Change(event) in changes {
        events[count] = event;
        events[count].flags |= abi::EV_RECEIPT;
        count += 1;
    }
    let (at, len) = (events.as_mut_ptr(), count as libc::c_int);
    // SAFETY: Q1: the receipts take the places of their changes.
    let done = unsafe { abi::kevent(queue, at.cast_const(), len, at, len, ptr::null()) };
    match check(done) {
        // The changes have been made.
        Err(error) if error.raw_os_error() == Some(libc::EINTR) => return Ok(()),
        done => drop(done?),
    }
    let failed = events[..count].iter().find_map(|event| {
        let (errno, of) = (event.data as i32, event.flags);
        let is_absent = matches!(errno, libc::ENOENT | libc::EBADF) && of & abi::EV_DELETE != 0;
        let is_error = of & abi::EV_ERROR != 0 && !matches!(errno, 0 | libc::EPIPE) && !is_absent;
        is_error.then(|| io::Error::from_raw_os_error(errno))
    });
    failed.map_or(Ok(()), Err)
}

/// Waits for reports until the timeout ends (`None`: no limit), and passes each on.
///
/// # Errors
/// `EINTR`, `EBADF`.
pub fn wait(
    queue: RawFd,
    timeout: Option<Duration>,
    mut report: impl FnMut(Report),
) -> io::Result<()> {
    let mut events = [MaybeUninit::<RawEvent>::uninit(); REPORTS_PER_WAIT];
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as _,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let (at, room) = (events.as_mut_ptr().cast(), REPORTS_PER_WAIT as libc::c_int);
    // SAFETY: Q1: no change.
    let count = check(unsafe { abi::kevent(queue, ptr::null(), 0, at, room, timeout) })?;
    for event in &events[..count as usize] {
        // SAFETY: Q1.
        report(report_of(unsafe { event.assume_init() }));
    }
    Ok(())
}

fn report_of(event: RawEvent) -> Report {
    let filter = match event.filter {
        abi::EVFILT_READ => Some(Filter::Read),
        abi::EVFILT_WRITE => Some(Filter::Write),
        _ => None,
    };
    // At the end of a stream the filter's own flags are the error of the socket.
    let is_end = event.flags & abi::EV_EOF != 0;
    Report {
        ident: event.ident,
        filter,
        errno: if is_end && filter.is_some() { event.fflags as i32 } else { 0 },
    }
}

#[cfg(test)]
mod tests;
