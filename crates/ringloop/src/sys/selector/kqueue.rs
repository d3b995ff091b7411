//! Readiness by kqueue(2).
//!
//! Owns: one queue, and the set of what is registered with it, as the kernel takes a second registration
//! for a change. A direction is a filter of its own: a registration of both is two filters, whose
//! reports are merged.
//!
//! A change deletes the filters and adds them again: kernels differ in what a second `EV_ADD` changes,
//! and a new filter reports a condition that holds already.

use super::super::event::{self, EventFd};
use super::super::file::{self, Descriptor, FileKind};
use super::super::interest::Interest;
use super::super::kqueue::{self, Change, Filter, REPORTS_PER_WAIT, Report};
use super::report::{EVENTS_PER_WAIT, Ready, TIMEOUT_MAX, Trigger};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const _: () = assert!(REPORTS_PER_WAIT == EVENTS_PER_WAIT);

const FILTERS: [(Interest, Filter); 2] =
    [(Interest::READ, Filter::Read), (Interest::WRITE, Filter::Write)];

/// Watches descriptors for readiness.
#[derive(Debug)]
pub struct Selector {
    queue: Descriptor,
    /// Apart, as operations hold selectors and are small.
    registered: Box<Mutex<Registered>>,
}

#[derive(Debug, Default)]
struct Registered {
    by_fd: HashMap<RawFd, Registration>,
    /// What wakes the waiting thread, to be drained when it has.
    wake: Option<RawFd>,
    /// Number of waits.
    wait_count: u64,
}

#[derive(Debug)]
struct Registration {
    interest: Interest,
    data: u64,
    /// The last wait that reported it, and the place of its report there.
    reported: (u64, usize),
}

impl Selector {
    /// The word for it, in `RINGLOOP_DRIVER` too.
    pub const NAME: &str = "kqueue";
    /// The call that creates one.
    pub const CREATE: &str = "kqueue";
    /// The call that registers a descriptor.
    pub const REGISTER: &str = "kevent";

    /// Creates an empty set, close-on-exec.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { queue: kqueue::create()?.into(), registered: Box::default() })
    }

    /// Registers what wakes the waiting thread.
    ///
    /// # Errors
    /// Those of [`Selector::add`].
    pub fn add_wake(&self, wake: &EventFd, data: u64) -> io::Result<()> {
        self.add(wake.as_raw_fd(), Interest::READ, data, Trigger::Level)?;
        self.lock().wake = Some(wake.as_raw_fd());
        Ok(())
    }

    /// Registers a descriptor.
    ///
    /// # Errors
    /// `EEXIST` if it is registered; `EPERM` if it is always ready (a regular file); `EBADF`.
    pub fn add(
        &self,
        fd: RawFd,
        interest: Interest,
        data: u64,
        trigger: Trigger,
    ) -> io::Result<()> {
        let mut registered = self.lock();
        if registered.by_fd.contains_key(&fd) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        // The kernel takes these, and reports them as ready for ever.
        if matches!(file::kind(fd)?, FileKind::Memory | FileKind::Other) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        self.change(fd, Interest::NONE, interest, trigger)?;
        registered.by_fd.insert(fd, Registration { interest, data, reported: (0, 0) });
        Ok(())
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
        let mut registered = self.lock();
        let registration = registered.by_fd.get_mut(&fd).ok_or_else(absent)?;
        let done = self.change(fd, registration.interest, interest, trigger);
        registration.interest = if done.is_ok() { interest } else { Interest::NONE };
        registration.data = data;
        done
    }

    /// Unregisters a descriptor; call it before closing the descriptor.
    ///
    /// # Errors
    /// `ENOENT` if it is not registered.
    pub fn delete(&self, fd: RawFd) -> io::Result<()> {
        let registration = self.lock().by_fd.remove(&fd).ok_or_else(absent)?;
        self.change(fd, registration.interest, Interest::NONE, Trigger::Level)
    }

    /// Deletes a registration's filters and adds those of `wanted`. After an error it has none.
    fn change(
        &self,
        fd: RawFd,
        had: Interest,
        wanted: Interest,
        trigger: Trigger,
    ) -> io::Result<()> {
        let delete = |of: Interest| {
            let filters = FILTERS.into_iter().filter(move |(side, _)| of.contains(*side));
            filters.map(move |(_, filter)| Change::delete(fd, filter))
        };
        let add = FILTERS
            .into_iter()
            .filter(|(side, _)| wanted.contains(*side))
            .map(|(_, filter)| Change::add(fd, filter, trigger == Trigger::Edge));
        let queue = self.as_raw_fd();
        kqueue::apply(queue, delete(had).chain(add)).inspect_err(|_| {
            // It can only be that there is nothing to delete.
            drop(kqueue::apply(queue, delete(wanted)));
        })
    }

    /// Waits until something is ready, the timeout ends or a signal arrives.
    ///
    /// Clears and fills `out`; `None` waits without limit, zero does not block. An interrupted wait
    /// returns `Ok` without reports. See kevent(2).
    pub fn wait(&self, out: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        out.clear();
        let mut reports = Vec::new();
        let timeout = timeout.map(|timeout| timeout.min(TIMEOUT_MAX));
        match kqueue::wait(self.as_raw_fd(), timeout, |report| reports.push(report)) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => return Ok(()),
            waited => waited?,
        }
        let mut registered = self.lock();
        registered.wait_count += 1;
        for report in reports {
            registered.merge(&report, out);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        // Nothing panics while it is held.
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// Adds a filter's report to that of its descriptor.
    fn merge(&mut self, report: &Report, out: &mut Vec<Ready>) {
        let fd = report.ident as RawFd;
        let Some(registration) = self.by_fd.get_mut(&fd) else {
            return;
        };
        if self.wake == Some(fd) {
            event::drain(fd);
        }
        let interest = match report.filter {
            Some(Filter::Read) if report.errno == 0 => Interest::READ,
            Some(Filter::Write) if report.errno == 0 => Interest::WRITE,
            _ => Interest::BOTH,
        };
        if registration.reported.0 == self.wait_count {
            out[registration.reported.1].interest |= interest;
        } else {
            registration.reported = (self.wait_count, out.len());
            out.push(Ready { data: registration.data, interest });
        }
    }
}

impl AsRawFd for Selector {
    fn as_raw_fd(&self) -> RawFd {
        self.queue.as_raw_fd()
    }
}

fn absent() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}
