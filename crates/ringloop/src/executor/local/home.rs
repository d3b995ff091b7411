//! A loop, for what belongs to it and may outlive it: descriptors, buffers, seats.
//!
//! Owns: [`Home`], [`SingleSeat`]. Called by: sockets and files (before a descriptor is closed), received bytes (when
//! they are dropped). Never does: keep the loop alive.

use super::{Local, Shared};
use crate::driver::Lease;
use crate::executor::holder::{Holder, Memory};
use crate::limits;
use std::ops::Range;
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

    /// The loop that the calling code runs in, if any.
    pub(crate) fn of_current() -> Option<Self> {
        Local::try_current().map(|local| local.home())
    }

    /// The loop, while there is one.
    #[inline]
    pub(crate) fn local(&self) -> Option<Local> {
        let shared = self.0.upgrade()?;
        Some(Local { shared })
    }

    /// Whether it is this loop.
    pub(crate) fn is(&self, local: &Local) -> bool {
        std::ptr::eq(self.0.as_ptr(), Rc::as_ptr(&local.shared))
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
    pub(in crate::executor) fn may_lend(&self) -> bool {
        let shared = self.0.upgrade();
        shared.is_some_and(|shared| shared.lent_count.get() < limits::LENT_BUFFERS)
    }

    /// One more is.
    pub(in crate::executor) fn count_lent(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.lent_count.update(|count| count + 1);
        }
    }

    /// One less is.
    pub(in crate::executor) fn uncount_lent(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.lent_count.update(|count| count - 1);
        }
    }

    fn count_single(&self, more: isize) {
        if let Some(shared) = self.0.upgrade() {
            let count = &shared.single_count;
            count.update(|count| count.wrapping_add_signed(more));
        }
    }

    fn count_stream(&self, more: isize) {
        if let Some(shared) = self.0.upgrade() {
            let count = &shared.stream_count;
            count.update(|count| count.wrapping_add_signed(more));
        }
    }

    /// Copy bytes out of a pool buffer, which is given back; the copy is in a small buffer where it fits, and goes with
    /// a holder of its own.
    pub(in crate::executor) fn copy_out(
        mut holder: Box<Holder>,
        lease: Lease,
        bytes: Range<usize>,
    ) -> (Vec<u8>, Box<Holder>) {
        let Some(shared) = holder.home.0.upgrade() else {
            holder.memory = Memory::Small(Vec::new());
            return (lease.bytes()[bytes].to_vec(), holder);
        };
        if bytes.len() > limits::SMALL_BUFFER_BYTES {
            let copy = lease.bytes()[bytes].to_vec();
            shared.give_back(lease);
            holder.memory = Memory::Small(Vec::new());
            return (copy, holder);
        }
        let mut holders = shared.holders.borrow_mut();
        holders.keep(holder);
        let mut small = holders.take_small(|| Self::of(&shared));
        drop(holders);
        let mut copy = small.take_own();
        copy.extend_from_slice(&lease.bytes()[bytes]);
        shared.give_back(lease);
        (copy, small)
    }

    /// Give back what a holder holds, and keep it for the next bytes; a loop that is gone needs none.
    #[inline(never)]
    pub(in crate::executor) fn keep_holder(mut holder: Box<Holder>) {
        let Some(shared) = holder.home.0.upgrade() else {
            return;
        };
        if !matches!(holder.memory, Memory::Small(_) | Memory::Medium(_)) {
            match std::mem::take(&mut holder.memory) {
                Memory::Pool(lease) | Memory::Followed(lease) => shared.give_back(lease),
                Memory::Large(buffer) => shared.large.borrow_mut().keep(buffer),
                Memory::Lent(_) | Memory::Small(_) | Memory::Medium(_) | Memory::None => {}
            }
        }
        shared.holders.borrow_mut().keep(holder);
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

/// A stream's seat among those that receive message by message, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct SingleSeat {
    home: Home,
    is_long: bool,
}

impl SingleSeat {
    pub(super) fn new(home: Home, is_long: bool) -> Self {
        home.count_single(1);
        Self { home, is_long }
    }

    /// Whether it is for messages that take a medium buffer.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.is_long
    }
}

impl Drop for SingleSeat {
    fn drop(&mut self) {
        self.home.count_single(-1);
    }
}

/// One of the loop's streams that receive, until it is dropped.
#[derive(Debug)]
pub(crate) struct Streaming(Home);

impl Streaming {
    pub(super) fn new(home: Home) -> Self {
        home.count_stream(1);
        Self(home)
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.count_stream(-1);
    }
}
