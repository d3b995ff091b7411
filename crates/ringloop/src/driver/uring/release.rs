//! Ends the use of a descriptor, which the driver or its owner closes.

use super::UringDriver;
use super::number::{DRAIN_STEP, KIND_OP};
use crate::driver::table::{Phase, flag};
use crate::limits;
use crate::op::Key;
use crate::sys::clock;
use crate::sys::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

impl UringDriver {
    /// See [`crate::driver::Driver::close`].
    pub(in crate::driver) fn close(&mut self, fd: OwnedFd) {
        self.hand_over_named(fd.as_raw_fd());
        self.finish_cancels(fd.as_raw_fd());
        self.late.close(&mut self.table, fd);
    }

    /// See [`crate::driver::Driver::release`]: the number may be another file's after this.
    pub(in crate::driver) fn release(&mut self, fd: RawFd) {
        self.hand_over_named(fd);
        self.finish_cancels(fd);
        let deadline_ns = clock::monotonic_ns() + limits::DRAIN_TIMEOUT_MS * 1_000_000;
        let mut ended_count = 0;
        while self.is_named_late(fd) && clock::monotonic_ns() < deadline_ns {
            let ended_before = std::mem::replace(&mut ended_count, self.linked_ended());
            self.may_have_begun |= ended_count > ended_before;
            self.prepare_to_wait();
            let (waiting_count, (_, room)) = (self.ring.ready(), self.ring.capacity());
            // An error here occurs again, and is reported, at the next wait. A full queue shows no
            // others.
            if waiting_count >= room || self.enter(waiting_count + 1, Some(DRAIN_STEP)).is_err() {
                return;
            }
        }
    }

    /// Has the kernel carry out the cancels of what names the descriptor: closing it then closes the
    /// file, frees its address and shows the end to its peer.
    fn finish_cancels(&mut self, fd: RawFd) {
        let table = &mut self.table;
        let holds_file = self.cancelling.iter().any(|key| {
            table.slot(*key).is_some_and(|slot| slot.phase == Phase::Armed && slot.names(fd))
        });
        if holds_file && self.bound.is_some() {
            // An error here occurs again, and is reported, at the next wait.
            drop(self.enter(0, Some(Duration::ZERO)));
        }
    }

    /// Number of ended operations of links whose completions are not taken yet: those behind them
    /// have begun.
    fn linked_ended(&mut self) -> usize {
        let (ring, table) = (&self.ring, &mut self.table);
        let ended = ring.waiting().filter(|cqe| {
            cqe.user_data >> 56 == KIND_OP
                && table
                    .slot(Key::from_user_data(cqe.user_data))
                    .is_some_and(|slot| slot.is(flag::LINKED))
        });
        ended.count()
    }

    /// True if the kernel may still look the number up for a cancelled operation; nothing else will
    /// end.
    fn is_named_late(&mut self, fd: RawFd) -> bool {
        let mut naming = self.late.noted.iter().filter(|(_, fds)| fds.contains(&fd));
        naming.any(|(key, _)| {
            let slot = self.table.slot(*key);
            slot.is_some_and(|slot| slot.phase == Phase::Armed && slot.is(flag::CANCELLED))
                && self.ring.peek(key.user_data()).is_none()
        })
    }
}
