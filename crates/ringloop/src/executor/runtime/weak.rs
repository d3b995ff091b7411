//! A weak handle to a loop, for descriptors and buffers that may outlive it.
//!
//! Owns: [`WeakLocal`]. Called by: sockets and files (before a descriptor is closed), received
//! bytes (on drop). Does not keep the loop alive.

use super::shared::Shared;
use crate::limits;
use crate::sys::fd::{OwnedFd, RawFd};
use std::rc::{Rc, Weak};

/// A weak handle to the loop whose driver uses a descriptor, and must release it before it is
/// closed. The default is no loop.
#[derive(Clone, Debug, Default)]
pub(crate) struct WeakLocal(Weak<Shared>);

impl WeakLocal {
    pub(super) fn of(shared: &Rc<Shared>) -> Self {
        Self(Rc::downgrade(shared))
    }

    /// True if it is this loop.
    pub(super) fn is(&self, shared: &Rc<Shared>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Rc::as_ptr(shared))
    }

    /// Makes the driver forget a descriptor that stays open.
    pub(crate) fn release(&self, fd: RawFd) {
        if let Some(shared) = self.0.upgrade()
            && let Ok(mut engine) = shared.engine.try_borrow_mut()
        {
            engine.driver_mut().release(fd);
        }
    }

    /// Cancels what is in flight on a descriptor; returns how many operations.
    pub(crate) fn cancel_descriptor(&self, fd: RawFd) -> usize {
        let Some(shared) = self.0.upgrade() else {
            return 0;
        };
        match shared.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().cancel_descriptor(fd),
            Err(_) => 0,
        }
    }

    /// True if another buffer of a pool of `pool_count` may be held until its bytes are sent
    /// ([`limits::HELD_BUFFERS_MAX`]), which leaves half of that pool to others.
    pub(crate) fn may_hold_for_send(&self, pool_count: usize) -> bool {
        let held_max = limits::HELD_BUFFERS_MAX.min(pool_count / 2);
        let shared = self.0.upgrade();
        shared.is_some_and(|shared| shared.held_count.get() < held_max)
    }

    /// Counts `more` buffers that are being sent from.
    pub(crate) fn count_held(&self, more: isize) {
        if let Some(shared) = self.0.upgrade() {
            let count = &shared.held_count;
            count.update(|count| count.wrapping_add_signed(more));
        }
    }

    /// Returns a large buffer; an empty vector replaces a lost buffer.
    pub(crate) fn keep_large(&self, buffer: Vec<u8>) {
        if let Some(shared) = self.0.upgrade() {
            shared.large.borrow_mut().keep(buffer);
        }
    }

    /// Closes a descriptor whose operations have ended or been cancelled.
    pub(crate) fn close(&self, fd: OwnedFd) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        match shared.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().close(fd),
            // Called from a waker's drop; the next turn closes it.
            Err(_) => shared.closing.borrow_mut().push(fd),
        }
    }
}
