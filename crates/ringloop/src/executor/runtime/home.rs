//! A loop, for what belongs to it and may outlive it: descriptors, buffers.
//!
//! Owns: [`Home`]. Called by: sockets and files (before a descriptor is closed), received bytes (when
//! they are dropped). Never does: keep the loop alive.

use super::shared::Shared;
use crate::driver::Lease;
use crate::limits;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::{Rc, Weak};

/// The loop whose driver knows a descriptor: it is told before the descriptor is closed, wherever
/// that happens. The default is nobody's.
#[derive(Clone, Default)]
pub(crate) struct Home(Weak<Shared>);

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home").finish_non_exhaustive()
    }
}

impl Home {
    pub(super) fn of(shared: &Rc<Shared>) -> Self {
        Self(Rc::downgrade(shared))
    }

    /// Whether it is this loop.
    pub(super) fn is(&self, shared: &Rc<Shared>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Rc::as_ptr(shared))
    }

    /// Have the driver forget a descriptor that is its owner's to keep.
    pub(crate) fn release(&self, fd: RawFd) {
        if let Some(shared) = self.0.upgrade()
            && let Ok(mut engine) = shared.engine.try_borrow_mut()
        {
            engine.driver_mut().release(fd);
        }
    }

    /// Cancel what is in flight on a descriptor; returns how many operations.
    pub(crate) fn cancel_descriptor(&self, fd: RawFd) -> usize {
        let Some(shared) = self.0.upgrade() else {
            return 0;
        };
        match shared.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().cancel_descriptor(fd),
            Err(_) => 0,
        }
    }

    /// Give a pool buffer back to the driver it is of; a driver that is gone needs none.
    #[inline(never)]
    pub(crate) fn give_back(&self, lease: Lease) {
        if let Some(shared) = self.0.upgrade() {
            shared.give_back(lease);
        }
    }

    /// Whether one more pool buffer may be held until its bytes are sent ([`limits::LENT_BUFFERS`]).
    pub(crate) fn may_lend(&self) -> bool {
        let shared = self.0.upgrade();
        shared.is_some_and(|shared| shared.lent_count.get() < limits::LENT_BUFFERS)
    }

    /// So many more are.
    pub(crate) fn count_lent(&self, more: isize) {
        if let Some(shared) = self.0.upgrade() {
            let count = &shared.lent_count;
            count.update(|count| count.wrapping_add_signed(more));
        }
    }

    /// Give a large buffer back; an empty vector stands for one that is lost.
    pub(crate) fn keep_large(&self, buffer: Vec<u8>) {
        if let Some(shared) = self.0.upgrade() {
            shared.large.borrow_mut().keep(buffer);
        }
    }

    /// Close a descriptor whose operations are over or given up.
    pub(crate) fn close(&self, fd: OwnedFd) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        match shared.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().close(fd),
            // By a waker's own drop; the next turn closes it.
            Err(_) => shared.closing.borrow_mut().push(fd),
        }
    }
}
