//! Links: operations that the kernel runs in order, without returning to the loop.
//!
//! Called by: `driver::uring`. Without a ring, the future runs the operations in sequence
//! (`executor::link`).
//!
//! The entries of a link are pushed together, since a link ends where a submission does. An
//! operation that has not begun is in none of the kernel's lists, so a cancel does not find it: it
//! ends with the one before it. If that one was not cancelled, the next begins nevertheless, and
//! its cancel is sent again.
//!
//! A submission can still end inside a link, if the kernel has no memory for another request. The
//! first operation that it did not take then fails with `ENOMEM`, and those behind it end with
//! `ECANCELED`, as after any failure. An operation that lost its time-out is cancelled: it must not
//! wait for ever. A polling kernel thread would let us see this too late: with submission polling
//! the future runs the operations in sequence.

use super::number::KIND_CANCEL;
use super::{Entry, UringDriver};
use crate::driver::completion::Sink;
use crate::driver::table::{Phase, flag};
use crate::limits;
use crate::op::{Key, NO_FD, Need, Operation, Request, Shape};
use crate::sys::libc;
use crate::sys::uring::abi::{self, Sqe};
use std::task::Waker;

impl UringDriver {
    /// True if the ring can run these as a link, in `entry_count` entries.
    pub fn can_link<'r>(
        &self,
        mut requests: impl Iterator<Item = &'r Request>,
        entry_count: usize,
    ) -> bool {
        let has = |request: &Request| match request.wants() {
            Some(feature) => self.ring.features().has(feature),
            None => true,
        };
        // All entries have to fit on the queue together, a time-out's too.
        let (submissions, _) = self.ring.capacity();
        entry_count <= limits::LINKED_MAX.min(submissions as usize)
            && !self.ring.polls()
            // A re-armed operation would leave the link.
            && requests.all(|request| has(request) && request.shape() != Shape::Retried)
    }

    /// Submits requests as a link. Each has its own completion; after one that fails, or moves less
    /// than it was asked to, the others end with `ECANCELED`.
    pub fn submit_linked(&mut self, requests: Vec<Request>, waker: &Waker) -> Vec<Key> {
        let insert = |request| {
            let sink = Sink::Waker(waker.clone());
            self.table.insert(request, sink, flag::LINKED).0
        };
        let keys: Vec<_> = requests.into_iter().map(insert).collect();
        if self.bound.is_none() || !self.backlog.is_empty() || !self.arm_linked(&keys) {
            self.backlog.push_back(Entry::Link(keys.clone()));
        }
        keys
    }

    /// Pushes the entries of a link; `false` if the submission queue stays too full.
    pub(super) fn arm_linked(&mut self, keys: &[Key]) -> bool {
        if !keys.iter().all(|key| self.table.is_in(*key, Phase::Queued)) {
            // One was cancelled while the link waited for room.
            for key in keys {
                self.cancel_unarmed(*key);
            }
            return true;
        }
        let mut entries = Vec::with_capacity(keys.len());
        let mut named = Vec::new();
        for key in keys {
            let slot = self.table.slot(*key);
            let Some(request) = slot.and_then(|slot| slot.request_mut()) else {
                continue;
            };
            let mut sqe = Sqe { user_data: key.user_data(), ..Sqe::default() };
            request.prepare(&mut sqe);
            sqe.flags |= abi::IOSQE_IO_LINK;
            entries.push(sqe);
            match request.need() {
                Need::Ready(fd, _) => named.push((*key, [fd, NO_FD])),
                Need::Pool(fds) => named.push((*key, fds)),
                _ => {}
            }
        }
        if let Some(last) = entries.last_mut() {
            last.flags &= !abi::IOSQE_IO_LINK;
        }
        if !self.push_linked(&entries) {
            return false;
        }
        for (key, fds) in named {
            self.unsubmitted.extend(fds);
            self.late.note(key, fds);
        }
        for key in keys {
            if let Some(slot) = self.table.slot(*key) {
                slot.phase = Phase::Armed;
            }
        }
        true
    }

    /// Ends the rest of a link that the kernel has taken in part.
    pub(super) fn end_split_link(&mut self) {
        let Some(split) = self.ring.take_back_split(KIND_CANCEL << 56) else {
            return;
        };
        let mut result = -libc::ENOMEM;
        for user_data in split.lost {
            self.settle(Key::from_user_data(user_data), result);
            result = -libc::ECANCELED;
        }
        if split.lost_timeout {
            self.cancel(Key::from_user_data(split.begun));
        }
    }

    /// Sends cancels again that may have come before their operation began. Each that finds nothing
    /// has a completion, which ends a wait: so only after an operation has ended that one of them
    /// may have been behind.
    #[cold]
    pub(super) fn cancel_late(&mut self) {
        // Task work begins what is behind an ended operation: a cancel does not find it before that
        // has run.
        self.may_have_begun = self.ring.needs_enter();
        for key in std::mem::take(&mut self.late_cancels) {
            if self.table.is_in(key, Phase::Armed) {
                // A full queue does no harm: it is sent again while the operation is there.
                self.may_have_begun |= !self.push_cancel(key);
                self.late_cancels.push(key);
            }
        }
        self.may_have_begun &= !self.late_cancels.is_empty();
    }
}
