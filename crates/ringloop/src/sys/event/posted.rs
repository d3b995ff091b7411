//! A notification posted to the completion port of a selector.
//!
//! Notifications merge: one is posted, and the next not before the selector has taken it. One that comes
//! before a selector does is posted when it attaches.

use super::super::afd::Port;
use super::super::fd::{AsRawFd, RawFd};
use super::super::libc;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Wakes a loop from any thread.
#[derive(Debug)]
pub struct EventFd(Arc<Shared>);

/// What the event shares with its selector.
#[derive(Debug, Default)]
pub struct Shared {
    is_notified: AtomicBool,
    /// Kept by the event, which outlives the selector: a closed handle's number may be another's.
    port: OnceLock<Arc<Port>>,
}

impl EventFd {
    /// Creates an event without a selector.
    ///
    /// # Errors
    /// None.
    #[allow(clippy::unnecessary_wraps)] // other forms fail
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::default()))
    }

    /// Ends a wait of the selector, this one or the next.
    pub fn notify(&self) {
        // SeqCst, as in `attach`: one of both sees what the other has stored.
        if !self.0.is_notified.swap(true, Ordering::SeqCst)
            && let Some(port) = self.0.port.get()
        {
            port.wake();
        }
    }

    /// Sends its notifications to the port of a selector.
    ///
    /// # Errors
    /// `EEXIST` if they go to another one.
    pub(in crate::sys) fn attach(&self, port: &Arc<Port>) -> io::Result<Arc<Shared>> {
        let set = self.0.port.set(Arc::clone(port));
        set.map_err(|_| io::Error::from_raw_os_error(libc::EEXIST))?;
        if self.0.is_notified.load(Ordering::SeqCst) {
            port.wake();
        }
        Ok(Arc::clone(&self.0))
    }
}

impl Shared {
    /// The selector has taken the notification: the next is posted again.
    pub(in crate::sys) fn taken(&self) {
        self.is_notified.store(false, Ordering::SeqCst);
    }
}

impl AsRawFd for EventFd {
    /// None: it is no object of the system.
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}
