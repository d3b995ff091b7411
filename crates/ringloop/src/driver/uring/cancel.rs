//! Cancels and pauses: through the kernel, or directly for operations it does not have.
//!
//! Called by: `driver::uring`. Frees no slot before its last completion.

use super::number::KIND_CANCEL;
use super::{Entry, UringDriver, push_operation};
use crate::driver::table::{Phase, Slot, flag};
use crate::op::{Key, Need, Operation, Shape};
use crate::sys::fd::RawFd;
use crate::sys::libc;
use crate::sys::uring::abi::{self, Sqe};
use std::time::Duration;

impl UringDriver {
    pub(in crate::driver) fn cancel(&mut self, key: Key) {
        if self.cancel_unarmed(key) {
            return;
        }
        let Some(slot) = self.table.slot(key) else {
            return;
        };
        if slot.phase != Phase::Armed || slot.is(flag::CANCELLED) {
            return;
        }
        slot.set(flag::CANCELLED);
        self.cancelling.push(key);
        if slot.is(flag::LINKED) {
            self.late_cancels.push(key);
            // It may be about to begin.
            self.may_have_begun |= self.ring.needs_enter();
        }
        if !self.backlog.is_empty() || !self.push_cancel(key) {
            self.backlog.push_back(Entry::Cancel(key));
        }
    }

    /// See [`crate::driver::Driver::cancel_descriptor`]. One entry cancels what waits on the file;
    /// each other operation needs an entry of its own.
    pub(in crate::driver) fn cancel_descriptor(&mut self, fd: RawFd) -> usize {
        let keys = self.table.cancellable_on(fd);
        let mut is_armed = false;
        for key in &keys {
            if self.cancel_unarmed(*key) {
                continue;
            }
            let Some(slot) = self.table.slot(*key) else {
                continue;
            };
            if is_found_by_file(slot) {
                slot.set(flag::CANCELLED);
                self.cancelling.push(*key);
                is_armed = true;
            } else {
                self.cancel(*key);
            }
        }
        if is_armed && (!self.backlog.is_empty() || !self.push_cancel_descriptor(fd)) {
            self.backlog.push_back(Entry::CancelDescriptor(fd));
        }
        keys.len()
    }

    pub(in crate::driver) fn forget(&mut self, key: Key) {
        self.cancel(key);
        self.table.orphan(key);
    }

    /// See [`crate::driver::Driver::forget_now`].
    pub(in crate::driver) fn forget_now(&mut self, key: Key) {
        self.forget(key);
        // Task work frees what the cancel ended. An error here occurs again, and is reported, at
        // the next wait.
        if !self.has_ended(key) && self.bound.is_some() {
            drop(self.enter(0, Some(Duration::ZERO)));
        }
    }

    /// Cancels an operation that the ring does not have: it ends at once.
    pub(super) fn cancel_unarmed(&mut self, key: Key) -> bool {
        if self.unwatch_borrowed(key) {
            return true;
        }
        match self.table.slot(key) {
            Some(slot) if matches!(slot.phase, Phase::Queued | Phase::Unarmed) => {
                self.settle(key, -libc::ECANCELED);
                true
            }
            _ => false,
        }
    }

    /// Ends operations that would be armed later on a number that the next file may have, and that
    /// their owner has neither awaited nor dropped. A queued cancel by descriptor is replaced by
    /// cancels of its operations.
    pub(super) fn drop_named(&mut self, fd: RawFd) {
        self.unwatch_all_borrowed(fd);
        let queued = self.backlog.iter().flat_map(|entry| match entry {
            Entry::Operation(key) => std::slice::from_ref(key),
            Entry::Link(keys) => keys,
            _ => &[],
        });
        let keys: Vec<_> = self.pools.starved().chain(queued.copied()).collect();
        for key in keys {
            if self.table.slot(key).is_some_and(|slot| slot.names(fd)) {
                self.cancel_unarmed(key);
            }
        }
        let backlog_len = self.backlog.len();
        self.backlog
            .retain(|entry| !matches!(entry, Entry::CancelDescriptor(named) if *named == fd));
        if self.backlog.len() < backlog_len {
            self.cancel_one_by_one(fd);
        }
    }

    /// Replaces a cancel by descriptor with cancels by key.
    #[cold]
    fn cancel_one_by_one(&mut self, fd: RawFd) {
        for key in self.table.keys() {
            if self.table.slot(key).is_some_and(|slot| {
                slot.phase == Phase::Armed
                    && slot.is(flag::CANCELLED)
                    && slot.names(fd)
                    && is_found_by_file(slot)
            }) {
                self.backlog.push_back(Entry::Cancel(key));
            }
        }
    }

    /// Cancels as an operation. A target that the kernel does not have is cancelled here; one that
    /// it has is not re-armed.
    pub(super) fn arm_cancel(&mut self, key: Key, target: Key) -> bool {
        if self.cancel_unarmed(target) {
            self.settle(key, 0);
            return true;
        }
        if let Some(slot) = self.table.slot(key)
            && !push_operation(&mut self.ring, slot, key)
        {
            return false;
        }
        if let Some(slot) = self.table.slot(target) {
            slot.set(flag::CANCELLED);
        }
        true
    }

    pub(super) fn push_cancel(&mut self, key: Key) -> bool {
        self.push(Sqe { fd: -1, addr: key.user_data(), ..cancel_entry() })
    }

    pub(super) fn push_cancel_descriptor(&mut self, fd: RawFd) -> bool {
        let op_flags = abi::IORING_ASYNC_CANCEL_FD | abi::IORING_ASYNC_CANCEL_ALL;
        let pushed = self.push(Sqe { fd, op_flags, ..cancel_entry() });
        if pushed {
            self.unsubmitted.push(fd);
        }
        pushed
    }

    /// Stops an operation whose completions are not being taken; results up to then still come.
    pub(super) fn pause(&mut self, key: Key) {
        let Some(slot) = self.table.slot(key) else {
            return;
        };
        // Edge events merge into one: they need no pause.
        if slot.is(flag::PAUSED) || slot.shape() == Shape::Edge {
            return;
        }
        slot.set(flag::PAUSED);
        self.stop(key);
    }

    /// Has the ring end an operation, which is then re-armed.
    pub(super) fn stop(&mut self, key: Key) {
        let Some(slot) = self.table.slot(key) else {
            return;
        };
        if slot.phase == Phase::Armed && !slot.is(flag::CANCELLED) {
            slot.set(flag::WAS_STOPPED);
            if !self.backlog.is_empty() || !self.push_cancel(key) {
                self.backlog.push_back(Entry::Cancel(key));
            }
        }
    }

    /// Resumes a paused operation: its completions have been taken.
    pub(in crate::driver) fn resume(&mut self, key: Key) {
        if let Some(slot) = self.table.slot(key)
            && slot.is(flag::PAUSED)
        {
            slot.unset(flag::PAUSED);
            self.rearm(key);
        }
    }
}

/// False for an operation behind another one in a link, which may not have begun, and for one that
/// names a descriptor in addition to its file: the input of a splice, the directory of a path.
fn is_found_by_file(slot: &Slot) -> bool {
    let need = slot.request().map(Operation::need);
    matches!(need, Some(Need::Ready(..))) && !slot.is(flag::LINKED)
}

/// A cancel that has a completion only if it finds nothing.
fn cancel_entry() -> Sqe {
    Sqe {
        opcode: abi::IORING_OP_ASYNC_CANCEL,
        flags: abi::IOSQE_CQE_SKIP_SUCCESS,
        user_data: KIND_CANCEL << 56,
        ..Sqe::default()
    }
}
