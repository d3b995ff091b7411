//! A descriptor that its loop releases before it is closed.
//!
//! Owns: [`LoopFd`]. Called by: sockets, files and pipes. Without a loop it is a plain descriptor.

use super::local::Local;
use super::weak::WeakLocal;
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::cell::RefCell;
use std::fmt;

/// A descriptor that the loop which used it last releases before it is closed.
pub(crate) struct LoopFd {
    fd: Option<OwnedFd>,
    weak_local: RefCell<Option<WeakLocal>>,
}

impl LoopFd {
    /// The descriptor, for use on `local`.
    #[inline]
    pub(crate) fn on(&self, local: &Local) -> RawFd {
        if !matches!(&*self.weak_local.borrow(), Some(weak_local) if local.is_target_of(weak_local))
        {
            self.move_to(local);
        }
        self.as_raw_fd()
    }

    #[cold]
    fn move_to(&self, local: &Local) {
        if let Some(other) = self.weak_local.replace(Some(local.downgrade())) {
            other.release(self.as_raw_fd());
        }
    }

    /// The descriptor, for the caller's own operations: the current loop, if any, releases it before
    /// it is closed.
    pub(crate) fn lend(&self) -> BorrowedFd<'_> {
        let mut weak_local = self.weak_local.borrow_mut();
        if weak_local.is_none() {
            *weak_local = Local::current_weak();
        }
        self.as_fd()
    }

    /// Releases the descriptor from its loop.
    pub(crate) fn into_fd(mut self) -> OwnedFd {
        if let Some(weak_local) = self.weak_local.get_mut().take() {
            weak_local.release(self.as_raw_fd());
        }
        self.fd.take().expect(HELD)
    }

    /// Cancels what is in flight on it; returns how many operations.
    pub(crate) fn cancel(&self) -> usize {
        match &*self.weak_local.borrow() {
            Some(weak_local) => weak_local.cancel_descriptor(self.as_raw_fd()),
            None => 0,
        }
    }
}

const HELD: &str = "it holds its descriptor until it is dropped";

impl From<OwnedFd> for LoopFd {
    fn from(fd: OwnedFd) -> Self {
        Self { fd: Some(fd), weak_local: RefCell::new(None) }
    }
}

impl fmt::Debug for LoopFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fd.fmt(f)
    }
}

impl AsRawFd for LoopFd {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl AsFd for LoopFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect(HELD).as_fd()
    }
}

impl Drop for LoopFd {
    fn drop(&mut self) {
        if let (Some(fd), Some(weak_local)) = (self.fd.take(), self.weak_local.get_mut()) {
            weak_local.close(fd);
        }
    }
}
