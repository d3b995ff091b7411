//! A descriptor that several loops use.
//!
//! Owns: [`SharedFd`], a std value with a descriptor, and the list of loops whose drivers have used
//! the descriptor. Called by: `net`, `fs`, `event`. It does no I/O.
//!
//! A coroutine never changes its thread, but its descriptors may move, or be used by two at once.
//! Each driver keeps a registration by the descriptor's number, and has to release it before the
//! kernel may reuse the number:
//!
//! ```text
//!   drop ──▶ no loop, or this one: closed at once
//!        └─▶ other loops: a message to each; the last one to release it closes the descriptor
//! ```

use crate::atomics::locked;
use ringloop::Error;
use ringloop::Workers;
use ringloop::embed::Local;
use ringloop::embed::sys::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A loop whose driver has used the descriptor.
struct UserLoop {
    id: u64,
    workers: Workers,
    worker: usize,
}

/// A std value that owns a descriptor.
pub(crate) trait StdFd: Into<OwnedFd> + AsFd + fmt::Debug {}

impl<S: Into<OwnedFd> + AsFd + fmt::Debug> StdFd for S {}

/// A std value with a descriptor, and the loops that use it. The hot fields come first.
#[repr(C)]
pub(crate) struct SharedFd<S: StdFd> {
    /// Until it is dropped.
    value: Option<S>,
    /// The loop that used it first, mostly the only one; 0: none.
    first_id: AtomicU64,
    loops: Mutex<Vec<UserLoop>>,
}

impl<S: StdFd> SharedFd<S> {
    pub fn new(value: S) -> Self {
        Self { value: Some(value), first_id: AtomicU64::new(0), loops: Mutex::new(Vec::new()) }
    }

    /// The descriptor, for use on the current loop.
    #[inline]
    pub fn on_loop(&self) -> RawFd {
        let id = Local::current_id().unwrap_or(0);
        if self.first_id.load(Ordering::Relaxed) != id {
            self.add_loop(id);
        }
        (**self).as_fd().as_raw_fd()
    }

    #[cold]
    fn add_loop(&self, id: u64) {
        let mut loops = locked(&self.loops);
        if id == 0 || loops.iter().any(|known| known.id == id) {
            return;
        }
        if loops.is_empty() {
            self.first_id.store(id, Ordering::Relaxed);
        }
        loops.push(UserLoop { id, workers: Workers::current(), worker: ringloop::worker() });
    }
}

impl<S: StdFd> Deref for SharedFd<S> {
    type Target = S;

    fn deref(&self) -> &S {
        match &self.value {
            Some(value) => value,
            None => unreachable!("the value is there until the drop"),
        }
    }
}

impl<S: StdFd> fmt::Debug for SharedFd<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<S: StdFd> Drop for SharedFd<S> {
    fn drop(&mut self) {
        let loops = self.loops.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.value.take() {
            close(value.into(), std::mem::take(loops));
        }
    }
}

/// Closes a descriptor once every loop has released it.
fn close(fd: OwnedFd, loops: Vec<UserLoop>) {
    let local = Local::try_current();
    let here = Local::current_id();
    if loops.iter().all(|known| Some(known.id) == here) {
        match local {
            Some(local) if !loops.is_empty() => local.close(fd),
            _ => drop(fd),
        }
        return;
    }
    let fd = Arc::new(fd);
    for known in loops {
        if let (true, Some(local)) = (Some(known.id) == here, &local) {
            local.release(fd.as_raw_fd());
            continue;
        }
        let held = Arc::clone(&fd);
        let sent = known.workers.spawn_on(known.worker, move || async move {
            Local::current().release(held.as_raw_fd());
        });
        // A loop that has ended has no registrations. One whose inbox is full has: the number must
        // not be reused.
        if let Err(Error::InboxFull { .. }) = sent {
            std::mem::forget(Arc::clone(&fd));
        }
    }
}
