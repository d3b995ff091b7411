//! Slots that their owners keep: an operation that is made again and again.
//!
//! Called by: both drivers, for `executor::Standing`. Never does: arm anything.
//!
//! ```text
//!   insert with KEPT ─▶ Queued ─▶ … ─▶ Done ──taken──▶ Idle ──forgotten──▶ Free
//!                         ▲                             │
//!                         └────────── made again ───────┘
//! ```
//! Each time has a generation of its own: a cancel of the last time names nobody.

use super::{GENERATION_MASK, Kept, Phase, Receiver, Slot, Table, Wait, find, flag};
use crate::driver::Key;
use crate::op::Request;
use std::task::Waker;

impl Table {
    /// The result of an operation whose slot is kept, and its request, to take its memory out of; `None` where the
    /// key is stale.
    #[inline(always)]
    pub fn take_standing(
        &mut self,
        key: Key,
        waker: &Waker,
    ) -> Result<Option<(i32, &mut Request)>, Wait> {
        let Some(slot) = find(&mut self.chunks, key) else {
            return Ok(None);
        };
        if slot.phase != Phase::Done {
            keep_waker(&mut slot.receiver, waker);
            return Err(Wait::Armed);
        }
        let Some(kept) = slot.results.pop() else {
            return Ok(None);
        };
        slot.phase = Phase::Idle;
        self.live_count -= 1;
        Ok(slot.request.as_mut().map(|request| (kept.result, request)))
    }

    /// Queue the operation of the idle slot that `key` names again, under a new key: the place of its request is for the
    /// caller to fill, and its phase to set where it is armed.
    #[inline(always)]
    pub fn renew(&mut self, key: Key, waker: &Waker) -> Option<(Key, &mut Phase, &mut Request)> {
        let slot = find(&mut self.chunks, key)?;
        let (Phase::Idle, Some(request)) = (slot.phase, &mut slot.request) else {
            return None;
        };
        keep_waker(&mut slot.receiver, waker);
        slot.phase = Phase::Queued;
        slot.flags = flag::KEPT;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.live_count += 1;
        let generation = slot.generation;
        Some((Key { generation, ..key }, &mut slot.phase, request))
    }
}

impl Slot {
    /// Keep the result of an operation whose slot is kept, and wake its owner; `false`: it is no such one, or its owner
    /// has gone.
    #[inline(always)]
    pub fn complete_standing(&mut self, result: i32) -> bool {
        if !self.is(flag::KEPT) {
            return false;
        }
        let Receiver::Waker(waker) = &self.receiver else {
            return false;
        };
        self.phase = Phase::Done;
        self.results.push(Kept {
            result,
            buffer: None,
        });
        waker.wake_by_ref();
        true
    }
}

#[inline(always)]
fn keep_waker(receiver: &mut Receiver, waker: &Waker) {
    if !matches!(receiver, Receiver::Waker(known) if known.will_wake(waker)) {
        set_waker(receiver, waker);
    }
}

#[cold]
fn set_waker(receiver: &mut Receiver, waker: &Waker) {
    *receiver = Receiver::Waker(waker.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Sink, table::Delivery};
    use crate::op::Nop;

    fn standing(table: &mut Table) -> Key {
        let sink = Sink::Waker(Waker::noop().clone());
        table.insert(Request::Nop(Nop), sink, flag::KEPT).0
    }

    fn end(table: &mut Table, key: Key, result: i32) {
        let delivery = table.complete(key, result, false, None);
        assert!(matches!(delivery, Delivery::Consumed(None)));
    }

    fn take(table: &mut Table, key: Key) -> Option<i32> {
        let taken = table.take_standing(key, Waker::noop());
        taken.expect("a result").map(|(result, _)| result)
    }

    #[test]
    fn slot_is_idle_between_two_times_and_counts_as_nothing_in_flight() {
        let mut table = Table::new();
        let first = standing(&mut table);
        assert!(table.take_standing(first, Waker::noop()).is_err());
        end(&mut table, first, 7);
        assert_eq!((take(&mut table, first), table.len()), (Some(7), 0));
        assert_eq!(table.cancellable().count(), 0);
        let (second, ..) = table.renew(first, Waker::noop()).expect("an idle slot");
        assert_eq!((second.index, table.len()), (first.index, 1));
        end(&mut table, second, 8);
        assert_eq!(take(&mut table, second), Some(8));
    }

    #[test]
    fn key_of_the_last_time_is_stale() {
        let mut table = Table::new();
        let first = standing(&mut table);
        end(&mut table, first, 7);
        take(&mut table, first);
        let (second, ..) = table.renew(first, Waker::noop()).expect("an idle slot");
        end(&mut table, first, 99);
        assert!(table.slot(first).is_none());
        assert!(table.take_standing(second, Waker::noop()).is_err());
        assert!(table.renew(second, Waker::noop()).is_none(), "in flight");
    }

    #[test]
    fn idle_slot_that_is_forgotten_is_freed_and_one_in_flight_with_its_last_completion() {
        let mut table = Table::new();
        let key = standing(&mut table);
        end(&mut table, key, 7);
        take(&mut table, key);
        table.orphan(key);
        assert!(table.slot(key).is_none());
        let again = standing(&mut table);
        assert_eq!((again.index, table.len()), (key.index, 1));
        table.orphan(again);
        assert_eq!(table.len(), 1);
        end(&mut table, again, 0);
        assert_eq!(table.len(), 0);
        assert!(table.slot(again).is_none());
    }
}
