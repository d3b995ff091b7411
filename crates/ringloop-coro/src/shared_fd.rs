//! A descriptor that several loops may know.
//!
//! Owns: [`SharedFd`], a value of std's around a descriptor, and the list of loops whose drivers were given its
//! number. Called by: `net`, `fs`, `event`. Never does: I/O.
//!
//! A coroutine never changes its thread, but what it holds may go to another one, or be used by two at once. Each
//! driver keeps a descriptor's registration by its number, so each has to forget the number before the kernel may
//! give it to somebody else:
//!
//! ```text
//!   drop ──▶ no loop, or this one: closed at once
//!        └─▶ others too: a message to each; the descriptor is closed by the last who has forgotten it
//! ```

use crate::atomics::locked;
use ringloop::Error;
use ringloop::executor::{Local, Workers};
use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A loop whose driver knows the number.
struct KnownLoop {
    id: u64,
    workers: Workers,
    worker: usize,
}

/// A descriptor as a value of std's, with the loops that use it. What is used first comes first.
#[repr(C)]
pub(crate) struct SharedFd<S: Into<OwnedFd> + AsRawFd> {
    /// Until it is dropped.
    value: Option<S>,
    /// The loop that used it first; most descriptors know no other. 0: none did.
    first: AtomicU64,
    homes: Mutex<Vec<KnownLoop>>,
}

impl<S: Into<OwnedFd> + AsRawFd> SharedFd<S> {
    pub fn new(value: S) -> Self {
        Self {
            value: Some(value),
            first: AtomicU64::new(0),
            homes: Mutex::new(Vec::new()),
        }
    }

    /// The number, to be used on the loop that runs.
    #[inline]
    pub fn on_loop(&self) -> RawFd {
        let id = Local::current_id().unwrap_or(0);
        if self.first.load(Ordering::Relaxed) != id {
            self.settle(id);
        }
        (**self).as_raw_fd()
    }

    #[cold]
    fn settle(&self, id: u64) {
        let mut homes = locked(&self.homes);
        if id == 0 || homes.iter().any(|home| home.id == id) {
            return;
        }
        if homes.is_empty() {
            self.first.store(id, Ordering::Relaxed);
        }
        homes.push(KnownLoop {
            id,
            workers: Workers::current(),
            worker: ringloop::worker(),
        });
    }
}

impl<S: Into<OwnedFd> + AsRawFd> Deref for SharedFd<S> {
    type Target = S;

    fn deref(&self) -> &S {
        match &self.value {
            Some(value) => value,
            None => unreachable!("a descriptor is used by nobody while it is dropped"),
        }
    }
}

impl<S: Into<OwnedFd> + AsRawFd + AsFd> AsFd for SharedFd<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<S: Into<OwnedFd> + AsRawFd + fmt::Debug> fmt::Debug for SharedFd<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<S: Into<OwnedFd> + AsRawFd> Drop for SharedFd<S> {
    fn drop(&mut self) {
        let homes = self.homes.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.value.take() {
            close(value.into(), std::mem::take(homes));
        }
    }
}

/// Close a descriptor once every loop has forgotten it.
fn close(fd: OwnedFd, homes: Vec<KnownLoop>) {
    let local = Local::try_current();
    let here = Local::current_id();
    if homes.iter().all(|home| Some(home.id) == here) {
        match local {
            Some(local) if !homes.is_empty() => local.close(fd),
            _ => drop(fd),
        }
        return;
    }
    let fd = Arc::new(fd);
    for home in homes {
        if let (true, Some(local)) = (Some(home.id) == here, &local) {
            local.release(fd.as_raw_fd());
            continue;
        }
        let held = Arc::clone(&fd);
        let told = home.workers.spawn_on(home.worker, move || async move {
            Local::current().release(held.as_raw_fd());
        });
        // A loop that has ended knows no number any more. One that takes no messages still does: the number must
        // not become another descriptor's.
        if let Err(Error::InboxFull { .. }) = told {
            std::mem::forget(Arc::clone(&fd));
        }
    }
}
