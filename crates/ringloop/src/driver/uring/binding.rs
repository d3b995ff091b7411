//! The thread that uses the ring: binding to it, leaving it, and a new ring for another one.
//!
//! Called by: `Driver`, as a run of the loop begins and ends. The kernel ties a ring to the first
//! thread that enters it (`IORING_SETUP_SINGLE_ISSUER`): no other can enter it, nor cancel what it
//! has. So a driver takes back what its ring has when it leaves a thread, and makes a new ring when
//! another thread binds it.
//!
//! # Invariants
//! 1. The ring of an unbound driver has no operation of the table: what it had is over, or waits in
//!    the backlog.

use super::number::DRAIN_STEP;
use super::{UringDriver, free};
use crate::driver::table::{Phase, Slot, flag};
use crate::limits;
use crate::op::{Key, Need, Operation, Request, Shape};
use crate::sys::clock;
use crate::sys::uring::Ring;
use std::io;
use std::thread;
use std::time::Duration;

impl UringDriver {
    /// Binds the driver to the calling thread.
    ///
    /// # Errors
    /// It is bound to another one, or there can be no ring for this one.
    pub(in crate::driver) fn bind(&mut self) -> io::Result<()> {
        let here = thread::current().id();
        match self.bound {
            Some(owner) if owner == here => return Ok(()),
            // Every later system call would fail with `EEXIST`, far from its cause.
            Some(_) => {
                return Err(io::Error::other(
                    "operations that cannot be moved (of files, links, or a connection that is \
                     being made) are on the io_uring of the thread that bound it first: run them to \
                     their end there, or use the epoll driver",
                ));
            }
            None => {}
        }
        match self.ring_thread {
            None => self.ring.enable()?,
            Some(owner) if owner == here => {}
            Some(_) => self.renew_ring()?,
        }
        self.ring_thread = Some(here);
        self.bound = Some(here);
        Ok(())
    }

    /// Leaves the calling thread, if it is the driver's: any thread may bind it next. The ring's
    /// operations begin again then. Stays bound where one of them cannot, or does not end in time.
    pub(in crate::driver) fn unbind(&mut self) {
        let bound = self.bound.filter(|owner| *owner == thread::current().id());
        if bound.is_none() || !self.backlog.is_empty() {
            return;
        }
        if self.ring.pending() > 0 && self.enter(0, Some(Duration::ZERO)).is_err() {
            return;
        }
        self.take_early();
        let can_end = |(_, slot): (Key, &Slot)| slot.is(flag::CANCELLED) || can_begin_again(slot);
        if !self.table.on_ring().all(can_end) {
            return;
        }
        let keys: Vec<Key> = self.table.on_ring().map(|(key, _)| key).collect();
        for key in keys {
            self.stop(key);
        }
        // What is re-armed waits in the backlog.
        self.bound = None;
        let deadline_ns = clock::monotonic_ns() + limits::UNBIND_TIMEOUT_MS * 1_000_000;
        while self.has_on_ring() && clock::monotonic_ns() < deadline_ns {
            if self.enter(1, Some(DRAIN_STEP)).is_err() {
                break;
            }
            self.take_early();
        }
        if self.has_on_ring() || self.ring.pending() > 0 {
            self.bound = bound;
        }
    }

    /// Takes what has completed, for the next run.
    fn take_early(&mut self) {
        while let Some(cqe) = self.ring.pop() {
            if let Some(event) = self.popped(cqe) {
                self.early.push_back(event);
            }
        }
    }

    /// True if the ring has operations, or entries of them.
    fn has_on_ring(&self) -> bool {
        self.table.on_ring().next().is_some()
    }

    /// Replaces the ring of another thread, which has no operations (invariant 1).
    #[cold]
    fn renew_ring(&mut self) -> io::Result<()> {
        if self.registered.is_used() {
            return Err(io::Error::other(
                "files or buffers are registered with the io_uring of another thread: run it there, \
                 or use the epoll driver",
            ));
        }
        let mut ring = Ring::new(&self.config).map_err(io::Error::other)?;
        let old_pools = self.pools.reopen(&ring)?;
        ring.enable()?;
        drop(std::mem::replace(&mut self.ring, ring));
        free(old_pools);
        self.wake_armed = false;
        self.borrowed.is_polled = false;
        self.unsubmitted.clear();
        self.cancelling.clear();
        self.late_cancels.clear();
        self.may_have_begun = false;
        Ok(())
    }
}

/// True if an operation that was cancelled with nothing done can begin again as if it had not.
fn can_begin_again(slot: &Slot) -> bool {
    debug_assert_eq!(slot.phase, Phase::Armed);
    let Some(request) = slot.request() else {
        return false;
    };
    // The kernel goes on with a connection, and reports the end of a buffer's use separately.
    let has_effects = matches!(
        request,
        Request::Connect(_)
            | Request::Splice(_)
            | Request::Tee(_)
            | Request::SendZc(_)
            | Request::SendMsgZc(_)
    );
    let waits_for_descriptor = matches!(request.need(), Need::Ready(..));
    waits_for_descriptor && !has_effects && slot.shape() != Shape::Retried && !slot.is(flag::LINKED)
}
