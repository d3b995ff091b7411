//! Polls of descriptors that others may close: a set beside the ring, which the ring polls.
//!
//! Called by: `driver::uring`, which has the set ([`BorrowedSet`]). Makes the set's system calls,
//! `epoll_ctl(2)` and `epoll_wait(2)`, none of which waits.
//!
//! The ring polls the set once at a time, and again before each wait: what is still ready then
//! completes the poll at once, as level-triggered polls need.
//!
//! A brief poll is the ring's own at first, and moves to the set when it has not been brief.
//!
//! Where the kernel refuses the set, or a descriptor in it, the ring polls the descriptor itself.
//!
//! # Invariants
//! 1. A poll is in the set exactly while it is flagged `IN_SET` and its phase is `Armed`.

use super::UringDriver;
use super::borrowed_set::BorrowedSet;
use super::number::KIND_SET;
use crate::driver::completion::Event;
use crate::driver::table::{Phase, Slot, flag};
use crate::limits;
use crate::op::{Key, PollMode, Request, Shape};
use crate::sys::clock;
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::selector::Trigger;
use crate::sys::uring::abi::{self, Sqe};
use std::time::Duration;

impl UringDriver {
    /// Begins a poll of a borrowed descriptor; false if the ring has to poll the descriptor itself.
    pub(super) fn begin_borrowed(&mut self, key: Key) -> bool {
        let request = self.table.slot(key).and_then(|slot| slot.request());
        let Some(Request::PollBorrowed(poll)) = request else {
            return false;
        };
        if poll.mode == PollMode::Brief && self.borrowed.watches.is_some() {
            let move_at_ns = clock::monotonic_ns() + limits::BRIEF_POLL_MS * 1_000_000;
            self.borrowed.brief.push_back((key, move_at_ns));
            return false;
        }
        self.watch_borrowed(key)
    }

    /// Moves brief polls that have not been brief to the set; how long a wait may take.
    pub(super) fn move_brief(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let now_ns = clock::monotonic_ns();
        while let Some(&(key, move_at_ns)) = self.borrowed.brief.front() {
            if let Some(left_ns) = move_at_ns.checked_sub(now_ns).filter(|left| *left > 0) {
                let left = Duration::from_nanos(left_ns);
                return Some(timeout.map_or(left, |timeout| timeout.min(left)));
            }
            self.borrowed.brief.pop_front();
            match self.table.slot(key).map(|slot| slot.phase) {
                // Once it has ended there, it is re-armed in the set.
                Some(Phase::Armed) => self.stop(key),
                Some(Phase::Queued | Phase::Unarmed) => drop(self.watch_borrowed(key)),
                _ => {}
            }
        }
        timeout
    }

    /// Puts a poll into the set; false if the ring has to poll its descriptor itself.
    pub(super) fn watch_borrowed(&mut self, key: Key) -> bool {
        let Some(slot) = self.table.slot(key) else {
            return false;
        };
        let Some(Request::PollBorrowed(poll)) = slot.request() else {
            return false;
        };
        let (fd, interest) = (poll.fd, poll.interest);
        let trigger = if slot.shape() == Shape::Edge { Trigger::Edge } else { Trigger::Level };
        let watches = self.borrowed.watches.as_mut();
        let Some(Ok(left)) = watches.map(|watches| watches.park(key, fd, interest, trigger)) else {
            return false;
        };
        slot.set(flag::IN_SET);
        slot.phase = Phase::Armed;
        self.borrowed.waiting_count += 1;
        // They waited for an earlier file of that number.
        for key in left {
            self.end_borrowed(key, -libc::EBADF);
        }
        true
    }

    /// Cancels a poll that is in the set; false if it is not.
    pub(super) fn unwatch_borrowed(&mut self, key: Key) -> bool {
        let in_set = |slot: &&mut Slot| slot.phase == Phase::Armed && slot.is(flag::IN_SET);
        let slot = self.table.slot(key).filter(in_set);
        let Some(Request::PollBorrowed(poll)) = slot.and_then(|slot| slot.request_mut()) else {
            return false;
        };
        if let Some(watches) = &mut self.borrowed.watches {
            watches.unpark(key, poll.fd, true);
        }
        self.end_borrowed(key, -libc::ECANCELED);
        true
    }

    /// Cancels the polls of a descriptor that is about to be closed.
    pub(super) fn unwatch_all_borrowed(&mut self, fd: RawFd) {
        let watches = self.borrowed.watches.as_mut();
        for key in watches.map(|watches| watches.unwatch(fd)).unwrap_or_default() {
            self.end_borrowed(key, -libc::ECANCELED);
        }
    }

    fn end_borrowed(&mut self, key: Key, result: i32) {
        self.borrowed.waiting_count -= 1;
        self.settle(key, result);
    }

    /// Has the ring poll the set; not without room in the submission queue.
    pub(super) fn poll_set(&mut self) {
        let Some(watches) = &self.borrowed.watches else {
            return;
        };
        let sqe = Sqe {
            opcode: abi::IORING_OP_POLL_ADD,
            fd: watches.as_raw_fd(),
            op_flags: Interest::READ.poll_mask(),
            user_data: KIND_SET << 56,
            ..Sqe::default()
        };
        self.borrowed.is_polled = self.push(sqe);
    }

    /// The ring's poll of the set has completed: asks the set what is ready.
    pub(super) fn set_polled(&mut self, result: i32) {
        let BorrowedSet { watches: Some(watches), is_polled, ready, .. } = &mut self.borrowed
        else {
            return;
        };
        *is_polled = false;
        if result < 0 || watches.wait(Some(Duration::ZERO), ready).is_err() {
            self.retry_later();
        }
    }

    /// The next completion of a poll in the set.
    pub(super) fn next_borrowed(&mut self) -> Option<Event> {
        while let Some((key, interest)) = self.borrowed.ready.pop_front() {
            if self.table.is_in(key, Phase::Armed)
                && let Some(event) = self.deliver(key, interest.poll_mask() as i32, true, None)
            {
                return Some(event);
            }
        }
        None
    }
}
