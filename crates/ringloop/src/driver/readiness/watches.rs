//! Which descriptor waits for what, and what epoll knows of it.
//!
//! Owns: the epoll instance, and a [`Watch`] for each descriptor that was waited for. Called by: the
//! driver. Never does: try an operation, or settle one.
//!
//! A descriptor stays registered, level-triggered, after its operation is over: the next one usually
//! comes, and a connection costs one `epoll_ctl`. An event that nobody waits for ends that.
//!
//! # Invariants
//! 1. `Watch::registered` is what the kernel has; it changes only after the system call succeeded.

use crate::driver::Key;
use crate::sys::epoll::{Epoll, Ready, Trigger};
use crate::sys::event::EventFd;
use crate::sys::interest::Interest;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

const WAKE_DATA: u64 = u64::MAX;

/// One descriptor.
#[derive(Debug)]
struct Watch {
    registered: Interest,
    /// Directions of which the last call said that the next one would block: not tried again before epoll
    /// reports them. It always does, being level-triggered.
    blocked: Interest,
    /// Operations that wait for the descriptor, oldest first.
    waiting: Vec<(Key, Interest)>,
}

impl Watch {
    fn wanted(&self) -> Interest {
        self.waiting
            .iter()
            .fold(Interest::NONE, |all, (_, interest)| all | *interest)
    }
}

/// epoll, and every descriptor it watches.
#[derive(Debug)]
pub struct Watches {
    epoll: Epoll,
    /// Indexed by descriptor.
    by_fd: Vec<Option<Watch>>,
    ready: Vec<Ready>,
    _wake: Arc<EventFd>,
}

impl Watches {
    /// Set up an epoll instance that `wake` interrupts.
    pub fn new(wake: Arc<EventFd>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        // Edge-triggered: each notification is one event, and nobody has to read the counter.
        epoll.add(wake.as_raw_fd(), Interest::READ, WAKE_DATA, Trigger::Edge)?;
        Ok(Self {
            epoll,
            by_fd: Vec::new(),
            ready: Vec::new(),
            _wake: wake,
        })
    }

    /// Wait for events, and move the operations that can go on to the back of `runnable`.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        runnable: &mut VecDeque<(Key, Interest)>,
    ) -> io::Result<()> {
        self.ready.clear();
        self.epoll.wait(&mut self.ready, timeout)?;
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
        let Some(Some(watch)) = self.by_fd.get_mut(fd as usize) else {
            return;
        };
        watch.blocked = watch.blocked.without(interest);
        let mut served = Interest::NONE;
        for (key, wanted) in &watch.waiting {
            let both = interest & *wanted;
            if both != Interest::NONE {
                served |= both;
                runnable.push_back((*key, both));
            }
        }
        if !(interest & watch.registered).without(served).is_none() {
            self.narrow(fd);
        }
    }

    /// Put an operation in its descriptor's queue, and register what the kernel does not know yet.
    pub fn park(&mut self, key: Key, fd: RawFd, interest: Interest) -> io::Result<()> {
        let index = usize::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        let watch = self.by_fd.get(index).and_then(Option::as_ref);
        let known = watch.map_or(Interest::NONE, |watch| watch.registered);
        let wanted = known | interest;
        if wanted != known {
            register(&self.epoll, fd, known, wanted)?;
        }
        // Only now: a number that is no descriptor must not size the table.
        if self.by_fd.len() <= index {
            self.by_fd.resize_with(index + 1, || None);
        }
        let watch = self.by_fd[index].get_or_insert_with(|| Watch {
            registered: Interest::NONE,
            blocked: Interest::NONE,
            waiting: Vec::new(),
        });
        watch.registered = wanted;
        watch.waiting.push((key, interest));
        Ok(())
    }

    /// Take an operation out of its descriptor's queue; with `narrow` its registration goes along.
    pub fn unpark(&mut self, key: Key, fd: RawFd, narrow: bool) {
        let Some(Some(watch)) = self.by_fd.get_mut(fd as usize) else {
            return;
        };
        watch.waiting.retain(|(known, _)| *known != key);
        if narrow {
            self.narrow(fd);
        }
    }

    /// Drop what the kernel knows of a descriptor that is about to be closed. Returns what waited for it still.
    #[must_use]
    pub fn unwatch(&mut self, fd: RawFd) -> Vec<Key> {
        let Some(watch) = self.by_fd.get_mut(fd as usize).and_then(Option::take) else {
            return Vec::new();
        };
        if watch.registered != Interest::NONE {
            // The descriptor may be gone already, and its registration with it.
            drop(self.epoll.delete(fd));
        }
        watch.waiting.into_iter().map(|(key, _)| key).collect()
    }

    /// Whether trying is known to be in vain, or would overtake.
    pub fn is_blocked(&self, fd: RawFd, interest: Interest) -> bool {
        let index = usize::try_from(fd).unwrap_or(usize::MAX);
        let watch = self.by_fd.get(index).and_then(Option::as_ref);
        watch.is_some_and(|watch| {
            let taken = watch.wanted() | watch.blocked;
            !(taken & interest).is_none()
        })
    }

    /// Remember that a direction of a descriptor would block.
    pub fn note_blocked(&mut self, fd: RawFd, interest: Interest) {
        if let Some(Some(watch)) = self.by_fd.get_mut(fd as usize) {
            watch.blocked |= interest;
        }
    }

    /// Tell the kernel to watch for no more than what is waited for.
    fn narrow(&mut self, fd: RawFd) {
        let Some(Some(watch)) = self.by_fd.get_mut(fd as usize) else {
            return;
        };
        let wanted = watch.wanted();
        if watch.registered == wanted {
            return;
        }
        let done = if wanted == Interest::NONE {
            self.epoll.delete(fd)
        } else {
            self.epoll.modify(fd, wanted, fd as u64, Trigger::Level)
        };
        // A descriptor that was closed under the watch has lost its registration by itself.
        watch.registered = if done.is_ok() { wanted } else { Interest::NONE };
        if watch.waiting.is_empty() && watch.registered == Interest::NONE {
            self.by_fd[fd as usize] = None;
        }
    }
}

fn register(epoll: &Epoll, fd: RawFd, known: Interest, wanted: Interest) -> io::Result<()> {
    let data = fd as u64;
    if known == Interest::NONE {
        return match epoll.add(fd, wanted, data, Trigger::Level) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                epoll.modify(fd, wanted, data, Trigger::Level)
            }
            done => done,
        };
    }
    match epoll.modify(fd, wanted, data, Trigger::Level) {
        // The descriptor was closed and its number used again: the registration went with it.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            epoll.add(fd, wanted, data, Trigger::Level)
        }
        done => done,
    }
}
