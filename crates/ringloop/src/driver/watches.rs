//! Operations by the descriptor they wait for, and its registration with the selector.
//!
//! Owns: the selector, and a [`Watch`] for each descriptor that was waited for. Called by:
//! the readiness driver, and the ring driver for descriptors that others may close. Neither tries nor settles an operation.
//!
//! A descriptor stays registered, level-triggered, after its operation has ended: another one
//! usually follows, and a connection costs one `epoll_ctl`. An event without a waiting operation
//! ends the registration. While all waiting operations ask for changes, it is edge-triggered.
//!
//! # Invariants
//! 1. `Watch::registered` and `Watch::trigger` are what the kernel has; they change only after the
//!    system call has succeeded. Not of an `unsettled` watch, whose last change the kernel refused
//!    for a moment: its next event, or the next operation, makes the change again.

use crate::op::Key;
use crate::sys::event::EventFd;
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::refused::RefusedCall;
use crate::sys::selector::{Ready, Selector, Trigger};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

const WAKE_DATA: u64 = u64::MAX;

/// One descriptor.
#[derive(Debug)]
struct Watch {
    registered: Interest,
    trigger: Trigger,
    /// See invariant 1.
    unsettled: bool,
    /// Directions in which the last call found that the next would block: not tried again before
    /// the selector reports them. It will, being level-triggered.
    blocked: Interest,
    /// Operations that wait for the descriptor, oldest first.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    key: Key,
    interest: Interest,
    trigger: Trigger,
}

impl Watch {
    fn wanted(&self) -> Interest {
        let interests = self.waiting.iter().map(|waiting| waiting.interest);
        interests.fold(Interest::NONE, |all, interest| all | interest)
    }

    fn is_waited_for(&self) -> bool {
        !self.wanted().is_none()
    }

    fn waits_for(&self, interest: Interest) -> bool {
        self.waiting.iter().any(|waiting| !(waiting.interest & interest).is_none())
    }

    /// The kernel may have another registration than is known.
    fn unsettle(&mut self) {
        self.registered = Interest::NONE;
        self.unsettled = true;
    }

    /// Edge-triggered only if no waiting operation needs the current level.
    fn wanted_trigger(&self) -> Trigger {
        let mut waiting = self.waiting.iter();
        if !self.waiting.is_empty() && waiting.all(|it| it.trigger == Trigger::Edge) {
            Trigger::Edge
        } else {
            Trigger::Level
        }
    }
}

/// Watches by descriptor, in pages that are allocated on first use: a loop with few descriptors
/// owns little, however high their numbers are.
#[derive(Debug, Default)]
struct Table {
    pages: Vec<Option<Box<[Option<Watch>; PAGE]>>>,
}

const PAGE: usize = 32;

impl Table {
    fn get(&self, fd: RawFd) -> Option<&Watch> {
        let index = usize::try_from(fd).ok()?;
        self.pages.get(index / PAGE)?.as_ref()?[index % PAGE].as_ref()
    }

    fn entry_mut(&mut self, fd: RawFd) -> Option<&mut Option<Watch>> {
        let index = usize::try_from(fd).ok()?;
        let page = self.pages.get_mut(index / PAGE)?.as_mut()?;
        Some(&mut page[index % PAGE])
    }

    fn get_mut(&mut self, fd: RawFd) -> Option<&mut Watch> {
        self.entry_mut(fd)?.as_mut()
    }

    fn take(&mut self, fd: RawFd) -> Option<Watch> {
        self.entry_mut(fd)?.take()
    }

    /// The watch of the descriptor with the number `index`; a new one watches nothing.
    fn get_or_make(&mut self, index: usize) -> &mut Watch {
        let page_index = index / PAGE;
        if self.pages.len() <= page_index {
            self.pages.resize_with(page_index + 1, || None);
        }
        let page = self.pages[page_index].get_or_insert_with(|| Box::new([const { None }; PAGE]));
        page[index % PAGE].get_or_insert_with(|| Watch {
            registered: Interest::NONE,
            trigger: Trigger::Level,
            unsettled: false,
            blocked: Interest::NONE,
            waiting: Vec::new(),
        })
    }
}

/// The selector, and every descriptor it watches.
#[derive(Debug)]
pub struct Watches {
    selector: Selector,
    by_fd: Table,
    ready: Vec<Ready>,
    _wake: Option<Arc<EventFd>>,
}

impl Watches {
    /// Creates a selector.
    pub fn new() -> io::Result<Self> {
        let selector = Selector::new().map_err(RefusedCall::name(Selector::CREATE))?;
        Ok(Self { selector, by_fd: Table::default(), ready: Vec::new(), _wake: None })
    }

    /// Creates a selector that `wake` interrupts.
    pub fn woken_by(wake: Arc<EventFd>) -> io::Result<Self> {
        let watches = Self::new()?;
        let added = watches.selector.add_wake(&wake, WAKE_DATA);
        added.map_err(RefusedCall::name(Selector::REGISTER))?;
        Ok(Self { _wake: Some(wake), ..watches })
    }

    /// The selector's descriptor, ready for reading while a watched one is ready.
    pub fn as_raw_fd(&self) -> RawFd {
        self.selector.as_raw_fd()
    }

    /// Waits for events, and appends the operations that can go on to `runnable`.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        runnable: &mut VecDeque<(Key, Interest)>,
    ) -> io::Result<()> {
        self.ready.clear();
        self.selector.wait(&mut self.ready, timeout)?;
        let ready = std::mem::take(&mut self.ready);
        for event in &ready {
            if event.data != WAKE_DATA {
                self.descriptor_ready(event.data as RawFd, event.interest, runnable);
            }
        }
        self.ready = ready;
        Ok(())
    }

    fn descriptor_ready(
        &mut self,
        fd: RawFd,
        interest: Interest,
        runnable: &mut VecDeque<(Key, Interest)>,
    ) {
        let Some(watch) = self.by_fd.get_mut(fd) else {
            // Its removal was refused. The descriptor may be closed already.
            drop(self.selector.delete(fd));
            return;
        };
        watch.blocked = watch.blocked.without(interest);
        let mut served = Interest::NONE;
        for waiting in &watch.waiting {
            let both = interest & waiting.interest;
            if both != Interest::NONE {
                served |= both;
                runnable.push_back((waiting.key, both));
            }
        }
        let is_unwanted = !(interest & watch.registered).without(served).is_none();
        if is_unwanted
            || watch.unsettled
            || watch.trigger == Trigger::Level && watch.wanted_trigger() == Trigger::Edge
        {
            self.narrow(fd);
        }
    }

    /// Queues an operation for its descriptor, and updates the registration if needed. Returns the
    /// operations that waited for an earlier file of that number, which was closed under them.
    pub fn park(
        &mut self,
        key: Key,
        fd: RawFd,
        interest: Interest,
        trigger: Trigger,
    ) -> io::Result<Vec<Key>> {
        let index = usize::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        let watch = self.by_fd.get(fd);
        let known = watch
            .map_or((Interest::NONE, Trigger::Level), |watch| (watch.registered, watch.trigger));
        let unsettled = watch.filter(|watch| watch.unsettled);
        let others = unsettled.map_or(Interest::NONE, Watch::wanted);
        let is_edge = trigger == Trigger::Edge
            && watch.is_none_or(|watch| {
                watch.waiting.is_empty() || watch.wanted_trigger() == Trigger::Edge
            });
        let trigger_wanted = if is_edge { Trigger::Edge } else { Trigger::Level };
        let wanted = (known.0 | others | interest, trigger_wanted);
        // Two that wait for the same are rare: the first one's file may have been closed.
        let is_doubled = watch.is_some_and(|watch| watch.waits_for(interest));
        let mut replaces = false;
        if wanted != known || unsettled.is_some() || is_doubled {
            match register(&self.selector, fd, known.0, wanted) {
                Ok(is_new) => replaces = is_new && watch.is_some_and(Watch::is_waited_for),
                Err(error) => {
                    // Of a file that was closed, the kernel has no registration any more.
                    if let Some(watch) = self.by_fd.get_mut(fd) {
                        watch.unsettle();
                    }
                    return Err(error);
                }
            }
        } else if trigger_wanted == Trigger::Edge {
            self.selector.rearm(fd, interest);
        }
        // Only now: an invalid descriptor number must not size the table.
        let watch = self.by_fd.get_or_make(index);
        (watch.registered, watch.trigger) = wanted;
        watch.unsettled = false;
        let mut left = Vec::new();
        if replaces {
            watch.blocked = Interest::NONE;
            left.extend(watch.waiting.drain(..).map(|waiting| waiting.key));
        }
        watch.waiting.push(Waiting { key, interest, trigger });
        Ok(left)
    }

    /// Removes an operation from its descriptor's queue; with `narrow` its registration too.
    pub fn unpark(&mut self, key: Key, fd: RawFd, narrow: bool) {
        let Some(watch) = self.by_fd.get_mut(fd) else {
            return;
        };
        watch.waiting.retain(|waiting| waiting.key != key);
        if narrow {
            self.narrow(fd);
        }
    }

    /// Unregisters a descriptor that is about to be closed. Returns the operations that still
    /// waited.
    #[must_use]
    pub fn unwatch(&mut self, fd: RawFd) -> Vec<Key> {
        let Some(watch) = self.by_fd.take(fd) else {
            return Vec::new();
        };
        if watch.registered != Interest::NONE || watch.unsettled {
            // The descriptor may be closed already, and its registration with it.
            drop(self.selector.delete(fd));
        }
        let waiting = watch.waiting.into_iter();
        waiting.map(|waiting| waiting.key).collect()
    }

    /// Has the selector report directions again that it has reported: they were used until `EAGAIN`.
    pub fn rearm(&self, fd: RawFd, interest: Interest) {
        self.selector.rearm(fd, interest);
    }

    /// See [`crate::embed::Driver::completions`].
    pub fn completions(&self) -> RawFd {
        self.selector.completions()
    }

    /// See [`crate::embed::Driver::take_completions`].
    pub fn take_completions(&self) -> Vec<usize> {
        self.selector.take_completions()
    }

    /// True if a try is known to block, or would overtake a waiting operation.
    pub fn is_blocked(&self, fd: RawFd, interest: Interest) -> bool {
        self.by_fd.get(fd).is_some_and(|watch| {
            let taken = watch.wanted() | watch.blocked;
            !(taken & interest).is_none()
        })
    }

    /// Notes that a direction of a descriptor would block.
    pub fn note_blocked(&mut self, fd: RawFd, interest: Interest) {
        if let Some(watch) = self.by_fd.get_mut(fd) {
            watch.blocked |= interest;
        }
    }

    /// Narrows the registration to what is waited for.
    fn narrow(&mut self, fd: RawFd) {
        let Some(watch) = self.by_fd.get_mut(fd) else {
            return;
        };
        let (wanted, trigger) = (watch.wanted(), watch.wanted_trigger());
        if watch.registered == wanted && watch.trigger == trigger && !watch.unsettled {
            return;
        }
        let done = if wanted == Interest::NONE {
            self.selector.delete(fd)
        } else {
            self.selector.modify(fd, wanted, fd as u64, trigger)
        };
        watch.trigger = trigger;
        watch.unsettled = false;
        // A descriptor that was closed while watched has lost its registration.
        watch.registered = if done.is_ok() { wanted } else { Interest::NONE };
        if done.is_err_and(|error| !is_gone(&error)) {
            watch.unsettle();
        }
        if watch.waiting.is_empty() && watch.registered == Interest::NONE && !watch.unsettled {
            self.by_fd.take(fd);
        }
    }
}

/// The descriptor has no registration, or is closed.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EBADF))
}

/// Changes a registration; whether the kernel had none.
fn register(
    selector: &Selector,
    fd: RawFd,
    known: Interest,
    (wanted, trigger): (Interest, Trigger),
) -> io::Result<bool> {
    let data = fd as u64;
    if known == Interest::NONE {
        return match selector.add(fd, wanted, data, trigger) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                selector.modify(fd, wanted, data, trigger).map(|()| false)
            }
            done => done.map(|()| true),
        };
    }
    match selector.modify(fd, wanted, data, trigger) {
        // The descriptor was closed and its number reused: the registration went with it.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            selector.add(fd, wanted, data, trigger).map(|()| true)
        }
        done => done.map(|()| false),
    }
}
