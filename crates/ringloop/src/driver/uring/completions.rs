//! Completions: finds the operation, re-arms it, and delivers the result.
//!
//! Called by: `Driver`, through [`UringDriver::next_event`]. Never waits; frees no slot before its
//! last completion.
//!
//! Byte path: from `sys::uring::Ring::pop` to `driver::table::Table::complete`.

use super::number::{KIND_CANCEL, KIND_OP, KIND_SET, KIND_WAKE};
use super::{UringDriver, claim};
use crate::buf::PoolKind;
use crate::driver::completion::Event;
use crate::driver::table::{Full, Phase, flag};
use crate::op::{Key, NO_FD, Need, Operation, Request, Shape};
use crate::sys::libc;
use crate::sys::pool::PoolBuffer;
use crate::sys::uring::abi::{self, Cqe};

impl UringDriver {
    /// The next completion for the embedder.
    pub(in crate::driver) fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some((key, result)) = self.synthetic.pop_front() {
                if let Some(event) = self.deliver(key, result, false, None) {
                    return Some(event);
                }
                continue;
            }
            if let Some(event) = self.next_borrowed() {
                return Some(event);
            }
            if let Some(event) = self.early.pop_front() {
                return Some(event);
            }
            let Some(cqe) = self.ring.pop() else {
                self.late.tidy(&mut self.table);
                return None;
            };
            if let Some(event) = self.popped(cqe) {
                return Some(event);
            }
        }
    }

    /// Handles a completion that was popped from the ring.
    #[inline(always)]
    pub(super) fn popped(&mut self, cqe: Cqe) -> Option<Event> {
        match cqe.user_data >> 56 {
            KIND_OP => return self.completed(cqe),
            KIND_WAKE => {
                self.wake_armed = cqe.flags & abi::IORING_CQE_F_MORE != 0;
                if cqe.res < 0 {
                    self.retry_later();
                }
            }
            KIND_SET => self.set_polled(cqe.res),
            // A cancel that found nothing: its target had completed.
            _ => debug_assert_eq!(cqe.user_data >> 56, KIND_CANCEL),
        }
        None
    }

    /// Handles one completion of an operation: re-arms it, or delivers the result.
    #[inline]
    pub(super) fn completed(&mut self, mut cqe: Cqe) -> Option<Event> {
        let key = Key::from_user_data(cqe.user_data);
        if cqe.res < 0 {
            cqe.res = self.begin_again(key, cqe.res)?;
        }
        // A slot is freed with the last completion, so a completion with a buffer finds it.
        let slot = self.table.slot(key)?;
        let shape = slot.shape();
        // The next operation of its link begins.
        self.may_have_begun |= slot.is(flag::LINKED);
        let more = cqe.flags & abi::IORING_CQE_F_MORE != 0;
        // The common case.
        let mut buffer = match shape {
            Shape::Once => None,
            Shape::Edge if more => None,
            Shape::MultiBuffer(PoolKind::Streams) if more && cqe.res > 0 => {
                claim(&mut self.pools, PoolKind::Streams, &cqe)
            }
            _ => return self.completed_in_part(key, shape, cqe),
        };
        match slot.complete_for_future(cqe.res, more, &mut buffer) {
            Some(true) if shape != Shape::Edge => {
                self.pause(key);
                None
            }
            Some(_) => None,
            None => self.deliver(key, cqe.res, more, buffer),
        }
    }

    /// Begins an operation again that has ended with nothing done: it was stopped, or the kernel has
    /// stopped waiting to send. `None`: it is re-armed; otherwise returns the final result.
    #[cold]
    fn begin_again(&mut self, key: Key, result: i32) -> Option<i32> {
        // A kernel thread that waits is interrupted.
        let is_stop = [-libc::ECANCELED, -libc::EINTR].contains(&result);
        match self.table.slot(key) {
            Some(slot) if is_stop && slot.is(flag::WAS_STOPPED) && !slot.is(flag::CANCELLED) => {
                slot.phase = Phase::Unarmed;
                self.rearm(key);
                None
            }
            _ => self.resend(key, result),
        }
    }

    /// Sends again when the kernel has stopped waiting to send. Returns as `begin_again`.
    ///
    /// Nearly all sends wait by a poll inside the kernel. After 128 polls without room
    /// (`APOLL_MAX_RETRY`), or without memory for one, a kernel thread waits, which ends with
    /// `EAGAIN` (`SO_SNDTIMEO`) or `EINTR`.
    fn resend(&mut self, key: Key, result: i32) -> Option<i32> {
        let has_stopped = [-libc::EAGAIN, -libc::EINTR].contains(&result);
        let Some(slot) = self.table.slot(key).filter(|_| has_stopped) else {
            return Some(result);
        };
        let request = slot.request().filter(|request| {
            matches!(request, Request::Send(_) | Request::SendMsg(_) | Request::SendDescriptors(_))
        });
        // The rest of its link has ended.
        let Some(Need::Ready(fd, _)) =
            request.map(Operation::need).filter(|_| !slot.is(flag::LINKED))
        else {
            return Some(result);
        };
        if slot.is(flag::CANCELLED) {
            return Some(-libc::ECANCELED);
        }
        slot.set(flag::POLL_FIRST);
        slot.phase = Phase::Unarmed;
        self.late.note(key, [fd, NO_FD]);
        self.rearm(key);
        None
    }

    /// A completion of an operation that may have to be re-armed.
    fn completed_in_part(&mut self, key: Key, shape: Shape, mut cqe: Cqe) -> Option<Event> {
        let mut buffer = match shape {
            Shape::MultiBuffer(PoolKind::Bundles) => {
                let (last_len, last) = self.hand_out_bundle(key, &cqe);
                cqe.res = last_len;
                last
            }
            Shape::MultiBuffer(kind) | Shape::OnceBuffer(kind) => {
                claim(&mut self.pools, kind, &cqe)
            }
            _ => None,
        };
        if cqe.res <= 0 {
            buffer = None;
        }
        if cqe.flags & abi::IORING_CQE_F_MORE != 0 {
            return self.deliver(key, cqe.res, true, buffer);
        }
        let slot = self.table.slot(key)?;
        let rearms = slot.request().is_some_and(Operation::rearms);
        if shape == Shape::Retried {
            return self.completed_try(key, cqe.res);
        }
        let polls = matches!(shape, Shape::Level | Shape::Edge);
        if polls && cqe.res == -libc::ENOMEM && !slot.is(flag::CANCELLED) {
            slot.phase = Phase::Unarmed;
            self.refused_polls.push(key);
            self.retry_later();
            return None;
        }
        let goes_on = !slot.is(flag::CANCELLED)
            && match shape {
                Shape::Once | Shape::Retried => false,
                Shape::Multi | Shape::Level | Shape::Edge => cqe.res >= 0,
                // 0 is the end of the stream.
                Shape::MultiBuffer(_) => cqe.res > 0 || cqe.res == -libc::ENOBUFS,
                Shape::OnceBuffer(_) => cqe.res == -libc::ENOBUFS,
            };
        if !goes_on {
            // Out of buffers is a pause, not an end; only the cancel ends it.
            let paused = shape.pool().is_some() && cqe.res == -libc::ENOBUFS;
            let result = if paused { -libc::ECANCELED } else { cqe.res };
            return self.deliver(key, result, false, buffer);
        }
        if !rearms && cqe.res > 0 {
            return self.deliver(key, cqe.res, false, buffer);
        }
        slot.phase = Phase::Unarmed;
        match shape {
            Shape::MultiBuffer(kind) | Shape::OnceBuffer(kind) if cqe.res == -libc::ENOBUFS => {
                self.pools.starve(kind, key);
                return None;
            }
            Shape::Level => self.rearm_later.push(key),
            _ => self.rearm(key),
        }
        self.deliver(key, cqe.res, true, buffer)
    }

    /// A completion of an operation that decides itself if it has ended.
    fn completed_try(&mut self, key: Key, mut res: i32) -> Option<Event> {
        let slot = self.table.slot(key)?;
        if slot.request_mut().is_some_and(|request| request.goes_on(res)) {
            if !slot.is(flag::CANCELLED) {
                slot.phase = Phase::Unarmed;
                self.rearm(key);
                return None;
            }
            res = -libc::ECANCELED;
        }
        self.deliver(key, res, false, None)
    }

    pub(super) fn deliver(
        &mut self,
        key: Key,
        res: i32,
        more: bool,
        buffer: Option<PoolBuffer>,
    ) -> Option<Event> {
        self.table.complete(key, res, more, buffer).unwrap_or_else(|Full| {
            self.pause(key);
            None
        })
    }
}
