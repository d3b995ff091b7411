//! Readiness by polls of AFD on a completion port.
//!
//! Owns: the port, the device, the registrations with the memory of their polls, and polls that were
//! cancelled and have not completed. A poll reports once: each wait first submits those of registrations
//! that have none in flight, which makes them level-triggered.
//!
//! A poll cannot tell a change from a condition that holds. So with [`Trigger::Edge`] a direction that was
//! reported is polled no more until [`Selector::rearm`], [`Selector::modify`] or a new registration.
//!
//! ```text
//!   idle ──wait: submit──▶ in flight ──completion──▶ reported, idle
//!    ▲                        │ modify, delete: cancel
//!    └──────completion────────┘ (a deleted one's memory is freed)
//! ```
//!
//! Operations of others complete at the port, too. The port's own descriptor is readable while there are such
//! completions to take ([`Selector::take_completions`]); it can be registered with its own selector alone.
//!
//! # Invariants
//! - **V1** The memory of a poll in flight is that of a [`Poll`] in `polls`, which neither drops nor touches
//!   it, until its completion was dequeued; a selector that is dropped waits for these, or leaks them.

use super::super::afd::{self, Completed, Device, Poll, Polled, Port};
use super::super::event::EventFd;
use super::super::fd::{AsRawFd, RawFd, is_socket};
use super::super::interest::Interest;
use super::super::libc;
use super::report::{EVENTS_PER_WAIT, Ready, TIMEOUT_MAX, Trigger};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const _: () = assert!(afd::REPORTS_PER_WAIT == EVENTS_PER_WAIT);

/// How long a dropped selector waits for the completions of its polls.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Watches sockets for readiness.
#[derive(Debug)]
pub struct Selector {
    device: Device,
    port: Arc<Port>,
    /// Apart, as operations hold selectors and are small.
    registered: Box<Mutex<Registered>>,
}

#[derive(Default)]
struct Registered {
    by_fd: HashMap<RawFd, Registration>,
    /// Polls in flight by their address: those of registrations, and cancelled ones without.
    polls: HashMap<usize, (RawFd, Poll)>,
    /// Registrations that may have no poll in flight.
    idle: Vec<RawFd>,
    /// Completions of others, until they are taken, and the word of the one who waits for them.
    completions: Vec<usize>,
    completions_data: Option<u64>,
    /// The event whose notifications come here, and its word.
    wake: Option<(Arc<super::super::event::Shared>, u64)>,
}

struct Registration {
    interest: Interest,
    data: u64,
    trigger: Trigger,
    /// Directions that are not polled before they are armed again: of an edge trigger, those reported.
    disarmed: Interest,
    state: State,
}

impl Registration {
    /// The directions to poll.
    fn armed(&self) -> Interest {
        self.interest.without(self.disarmed)
    }

    /// Notes a report of these directions.
    fn disarm(&mut self, reported: Interest) {
        if self.trigger == Trigger::Edge {
            self.disarmed |= reported;
        }
    }
}

enum State {
    Idle(Poll),
    /// The address of the poll, and what it asks for.
    InFlight(usize, Interest),
    /// While a poll is moved.
    Moving,
}

impl Selector {
    /// The word for it, in `RINGLOOP_DRIVER` too.
    pub const NAME: &str = "afd";
    /// The call that creates one.
    pub const CREATE: &str = "NtCreateFile";
    /// The call that registers a descriptor.
    pub const REGISTER: &str = "WSAIoctl";
    /// Whether edge triggers depend on [`Selector::rearm`].
    pub const NEEDS_REARM: bool = true;

    /// Creates an empty set.
    ///
    /// # Errors
    /// A lack of memory or handles.
    pub fn new() -> io::Result<Self> {
        let port = Arc::new(Port::new()?);
        Ok(Self { device: Device::open(&port)?, port, registered: Box::default() })
    }

    /// Registers what wakes the waiting thread.
    ///
    /// # Errors
    /// `EEXIST` if it wakes another set.
    pub fn add_wake(&self, wake: &EventFd, data: u64) -> io::Result<()> {
        let shared = wake.attach(&self.port)?;
        self.lock().wake = Some((shared, data));
        Ok(())
    }

    /// Registers a descriptor.
    ///
    /// # Errors
    /// `EEXIST` if it is registered; `EPERM` if it is no socket; `EBADF`.
    pub fn add(
        &self,
        fd: RawFd,
        interest: Interest,
        data: u64,
        trigger: Trigger,
    ) -> io::Result<()> {
        let mut registered = self.lock();
        let is_port = fd == self.port.descriptor();
        if registered.by_fd.contains_key(&fd) || is_port && registered.completions_data.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        if is_port {
            registered.completions_data = Some(data);
            return Ok(());
        }
        if fd >= 0 && !is_socket(fd) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let (state, disarmed) = (State::Idle(Poll::new(afd::base_of(fd)?)), Interest::NONE);
        let registration = Registration { interest, data, trigger, disarmed, state };
        registered.by_fd.insert(fd, registration);
        registered.idle.push(fd);
        Ok(())
    }

    /// Replaces a registration; a condition that holds already is reported again.
    ///
    /// # Errors
    /// `ENOENT` if it is not registered.
    pub fn modify(
        &self,
        fd: RawFd,
        interest: Interest,
        data: u64,
        trigger: Trigger,
    ) -> io::Result<()> {
        let mut registered = self.lock();
        if let Some(known) = &mut registered.completions_data
            && fd == self.port.descriptor()
        {
            *known = data;
            return Ok(());
        }
        let registration = registered.by_fd.get_mut(&fd).ok_or_else(absent)?;
        registration.interest = interest;
        registration.data = data;
        registration.trigger = trigger;
        registration.disarmed = Interest::NONE;
        registered.poll_anew(fd, &self.device);
        Ok(())
    }

    /// Arms directions of an edge trigger again: the caller has met `EAGAIN`, and will wait. What is ready
    /// already is reported. Costs a map's access if they are armed, as those of a level trigger are.
    pub fn rearm(&self, fd: RawFd, interest: Interest) {
        let mut registered = self.lock();
        let Some(registration) = registered.by_fd.get_mut(&fd) else {
            return;
        };
        if !(registration.disarmed & interest).is_none() {
            registration.disarmed = registration.disarmed.without(interest);
            registered.poll_anew(fd, &self.device);
        }
    }

    /// Unregisters a descriptor; call it before closing the descriptor.
    ///
    /// # Errors
    /// `ENOENT` if it is not registered.
    pub fn delete(&self, fd: RawFd) -> io::Result<()> {
        let mut registered = self.lock();
        if fd == self.port.descriptor() {
            return registered.completions_data.take().map(drop).ok_or_else(absent);
        }
        let registration = registered.by_fd.remove(&fd).ok_or_else(absent)?;
        if let State::InFlight(address, _) = registration.state
            && let Some((_, poll)) = registered.polls.get(&address)
        {
            poll.cancel(&self.device);
        }
        Ok(())
    }

    /// Waits until something is ready or the timeout ends.
    ///
    /// Clears and fills `out`; `None` waits without limit, zero does not block.
    pub fn wait(&self, out: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        out.clear();
        let timeout = timeout.map(|timeout| timeout.min(TIMEOUT_MAX));
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut completed = Vec::new();
        loop {
            self.lock().submit_idle(&self.device, out);
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            // What failed is reported at once, as is what was not taken.
            let left = if out.is_empty() && self.lock().completions_ready().is_none() {
                left
            } else {
                Some(Duration::ZERO)
            };
            self.port.wait(left, &mut completed)?;
            let mut registered = self.lock();
            for completed in completed.drain(..) {
                registered.take(completed, out);
            }
            // A cancelled poll is no report, and may end a wait early by it: its registration polls anew.
            let has_idle = registered.has_idle();
            let is_over = left.is_some_and(|left| left.is_zero());
            out.extend(registered.completions_ready());
            if !out.is_empty() || is_over && !has_idle {
                return Ok(());
            }
        }
    }

    /// The port as a descriptor: handles may be associated with it, by any key but those of `sys::afd`.
    pub fn completions(&self) -> RawFd {
        self.port.descriptor()
    }

    /// The completions of others that waits have brought: the addresses of their `OVERLAPPED`s.
    pub fn take_completions(&self) -> Vec<usize> {
        mem::take(&mut self.lock().completions)
    }

    fn lock(&self) -> MutexGuard<'_, Registered> {
        // Nothing panics while it is held.
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// The report of others' completions, if there are some and somebody waits for them.
    fn completions_ready(&self) -> Option<Ready> {
        let data = self.completions_data.filter(|_| !self.completions.is_empty())?;
        Some(Ready { data, interest: Interest::READ })
    }

    fn has_idle(&self) -> bool {
        let needs = |fd| matches!(self.by_fd.get(fd), Some(it) if !it.armed().is_none());
        self.idle.iter().any(needs)
    }

    /// Has the next wait poll for what a registration asks for now.
    fn poll_anew(&mut self, fd: RawFd, device: &Device) {
        let Some(registration) = self.by_fd.get(&fd) else {
            return;
        };
        match registration.state {
            // A poll that asks for more is left: its report is filtered.
            State::InFlight(address, asked) if !asked.contains(registration.armed()) => {
                if let Some((_, poll)) = self.polls.get(&address) {
                    poll.cancel(device);
                }
            }
            State::Idle(_) => self.idle.push(fd),
            _ => {}
        }
    }

    /// Submits the polls of registrations that have none in flight; one that cannot be polled is reported,
    /// so that the next call on it tells why.
    fn submit_idle(&mut self, device: &Device, out: &mut Vec<Ready>) {
        for fd in mem::take(&mut self.idle) {
            let Some(registration) = self.by_fd.get_mut(&fd) else {
                continue;
            };
            let interest = registration.armed();
            // Of no interest: `poll_anew` names it again.
            if interest.is_none() || !matches!(registration.state, State::Idle(_)) {
                continue;
            }
            let State::Idle(mut poll) = mem::replace(&mut registration.state, State::Moving) else {
                continue;
            };
            let address = poll.address();
            // SAFETY: V1: it is idle, and goes to `polls`.
            if unsafe { poll.submit(device, interest) }.is_ok() {
                registration.state = State::InFlight(address, interest);
                self.polls.insert(address, (fd, poll));
            } else {
                registration.state = State::Idle(poll);
                registration.disarm(Interest::BOTH);
                out.push(Ready { data: registration.data, interest: Interest::BOTH });
                self.idle.push(fd);
            }
        }
    }

    /// Handles a completion.
    fn take(&mut self, completed: Completed, out: &mut Vec<Ready>) {
        let address = match completed {
            Completed::Poll(address) => address,
            Completed::Other(address) => {
                self.completions.push(address);
                return;
            }
            Completed::Wake => {
                if let Some((shared, data)) = &self.wake {
                    shared.taken();
                    out.push(Ready { data: *data, interest: Interest::READ });
                }
                return;
            }
        };
        let Some((fd, poll)) = self.polls.remove(&address) else {
            return;
        };
        let polled = poll.result();
        let Some(registration) = self.by_fd.get_mut(&fd) else {
            return;
        };
        // A number that was registered anew has another poll.
        if !matches!(registration.state, State::InFlight(current, _) if current == address) {
            return;
        }
        registration.state = State::Idle(poll);
        match polled {
            Polled::Closed => {
                self.by_fd.remove(&fd);
                return;
            }
            Polled::Cancelled => {}
            Polled::Ready(ready) => {
                // An error is both directions, whatever was asked for.
                let is_error = ready == Interest::BOTH;
                let ready = if is_error { ready } else { ready & registration.armed() };
                if !ready.is_none() {
                    registration.disarm(ready);
                    out.push(Ready { data: registration.data, interest: ready });
                }
            }
        }
        self.idle.push(fd);
    }
}

impl Drop for Selector {
    fn drop(&mut self) {
        let mut registered = self.lock();
        for (_, poll) in registered.polls.values() {
            poll.cancel(&self.device);
        }
        let deadline = Instant::now() + LAST_WAIT;
        let mut completed = Vec::new();
        while !registered.polls.is_empty() && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.port.wait(Some(left), &mut completed).is_err() {
                break;
            }
            for completed in completed.drain(..) {
                if let Completed::Poll(address) = completed {
                    registered.polls.remove(&address);
                }
            }
        }
        // V1: the system may write them yet.
        for (_, poll) in mem::take(&mut registered.polls).into_values() {
            mem::forget(poll);
        }
    }
}

impl AsRawFd for Selector {
    /// None: a port cannot be waited for by another one.
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("count", &self.by_fd.len())
            .field("in_flight", &self.polls.len())
            .finish_non_exhaustive()
    }
}

fn absent() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}
