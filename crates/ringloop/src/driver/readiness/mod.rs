//! The readiness driver: the same operations without a ring.
//!
//! Owns: the table of operations, the receive pools, and when an operation is tried; [`Watches`]
//! has the selector and the operations that wait for each descriptor. Called by: `Driver`. Blocks only in
//! `wait`.
//!
//! epoll always reports regular files as ready, though they wait for the disk: their operations go
//! to pool threads (`driver::working`), unless a try without waiting succeeds.
//!
//! A single-shot operation is tried when it is submitted and again when its descriptor is ready.
//!
//! # Invariants
//! 1. A key is in a descriptor's queue exactly while its phase is `Armed`, it needs that descriptor
//!    and, for a receive into the pool, a buffer was free at its last try.
//! 2. A key is in `finished` exactly while its phase is `Settled`, and only once.

mod attempt;
mod pool;
pub(super) mod receive;
mod tries;

use super::blocking_pool::BlockingPool;
use super::completion::{Event, Sink};
use super::table::{Full, Phase, Slot, Table, flag};
use super::watches::Watches;
use super::working::Working;
use crate::buf::PoolKind;
use crate::deadlines::Deadlines;
use crate::limits;
use crate::op::{Key, Need, Operation, Request, Shape, raw_of};
use crate::sys::clock;
use crate::sys::event::EventFd;
use crate::sys::fd::{AsRawFd, OwnedFd, RawFd};
use crate::sys::fork::Generation;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::pool::PoolBuffer;
use crate::sys::selector::{Selector, Trigger};
use attempt::{outcome, would_block};
use pool::Pool;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use attempt::attempt;

/// epoll, and all operations.
#[derive(Debug)]
pub struct ReadinessDriver {
    generation: Generation,
    watches: Watches,
    table: Table,
    /// In the order of [`PoolKind`]; the other kinds exist only on the ring.
    pools: [Pool; 2],
    /// Operations whose descriptor became ready, to be tried one at a time by `next_event`.
    runnable: VecDeque<(Key, Interest)>,
    /// Messages that one call received. Delivered one at a time, before anything else of their
    /// operation.
    arrived: VecDeque<(Key, PoolBuffer)>,
    /// Results that are already known.
    finished: VecDeque<(Key, i32)>,
    deadlines: Deadlines<u64, Key>,
    /// Time-outs that have neither passed nor been cancelled.
    timeout_count: usize,
    /// Operations on regular files.
    working: Working,
    /// Results that multishot operations may still deliver before the next wait.
    burst_left: u32,
    /// The last wait did not call the kernel, as there was something to try.
    has_skipped: bool,
    /// Starved receives that may go on before the kernel is called again.
    resumes_left: usize,
}

impl ReadinessDriver {
    /// Creates a selector that `wake` interrupts; `pool` runs blocking calls.
    pub(super) fn new(wake: Arc<EventFd>, pool: BlockingPool) -> io::Result<Self> {
        Ok(Self {
            generation: Generation::current(),
            watches: Watches::woken_by(wake)?,
            table: Table::new(),
            pools: [Pool::new(PoolKind::Streams)?, Pool::new(PoolKind::Datagrams)?],
            runnable: VecDeque::new(),
            arrived: VecDeque::new(),
            finished: VecDeque::new(),
            deadlines: Deadlines::default(),
            timeout_count: 0,
            working: Working::new(pool),
            burst_left: 0,
            has_skipped: false,
            resumes_left: 0,
        })
    }

    // Does something on the ring; both drivers share the signature.
    #[allow(clippy::unused_self, clippy::unnecessary_wraps)]
    pub(super) fn bind(&mut self) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    pub(super) fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    /// Ends an operation with this result, which `next_event` delivers.
    fn settle(&mut self, key: Key, result: i32) {
        if let Some(slot) = self.table.slot(key) {
            slot.phase = Phase::Settled;
            self.finished.push_back((key, result));
        }
    }

    pub(super) fn submit_as(&mut self, request: Request, sink: Sink, mut flags: u8) -> Key {
        let poll_first = flags & flag::POLL_FIRST != 0;
        let shape = request.shape();
        let need = request.need();
        if let Request::Close(close) = &request {
            self.release(close.fd);
        }
        // Checked once for all its connections.
        if matches!(&request, Request::Accept(accept) if accept.multi && accept.is_nonblocking()) {
            flags |= flag::NONBLOCKING;
        }
        let (key, slot) = self.table.insert(request, sink, flags);
        slot.phase = Phase::Armed;
        match need {
            Need::Nothing => self.try_now(key),
            Need::Cancel(target) => {
                let result = self.cancel_with_result(target);
                self.settle(key, result);
            }
            Need::Clock(deadline_ns) => {
                self.deadlines.push(deadline_ns, key);
                self.timeout_count += 1;
            }
            Need::Ready(fd, interest)
                if matches!(shape, Shape::OnceBuffer(_))
                    && self.watches.is_blocked(fd, interest) =>
            {
                self.park(key, fd, interest);
            }
            Need::Ready(fd, interest) if !shape.is_single() => {
                self.park(key, fd, interest);
                // Not tried here if multishot, as there is room for one result only. Otherwise
                // tried: an error of the descriptor may not show as readiness. A poll is answered
                // by epoll itself.
                if !matches!(shape, Shape::Level | Shape::Edge) {
                    self.runnable.push_back((key, interest));
                }
            }
            Need::Ready(fd, interest) if poll_first || self.watches.is_blocked(fd, interest) => {
                self.park(key, fd, interest);
            }
            Need::Ready(..) | Need::Pool(_) => self.enqueue(key),
        }
        key
    }

    /// Tries an operation, and queues it where it is tried again.
    fn enqueue(&mut self, key: Key) {
        if let Some(result) = self.attempt(key) {
            self.settle(key, result);
            return;
        }
        match self.need(key) {
            Some(Need::Ready(fd, interest)) => self.park(key, fd, interest),
            Some(Need::Pool(fds)) => {
                if let Err(error) = self.working.submit(&mut self.table, key, fds) {
                    self.settle(key, raw_of(Err(error)));
                }
            }
            _ => {}
        }
    }

    /// Cancels as an operation: 0, `ENOENT` if it has ended, `EALREADY` if it cannot be stopped.
    fn cancel_with_result(&mut self, target: Key) -> i32 {
        let phase = self.table.slot(target).map(|slot| slot.phase);
        if !matches!(phase, Some(Phase::Armed | Phase::Queued | Phase::Working)) {
            return -libc::ENOENT;
        }
        self.cancel(target);
        match self.table.slot(target) {
            Some(slot) if slot.phase == Phase::Working => -libc::EALREADY,
            _ => 0,
        }
    }

    pub(super) fn cancel(&mut self, key: Key) {
        let Some(slot) = self.table.slot(key) else {
            return;
        };
        match slot.phase {
            Phase::Armed | Phase::Unarmed => {}
            Phase::Queued => return self.settle(key, -libc::ECANCELED),
            Phase::Working => {
                // A call that a thread has begun ends with its own result.
                slot.set(flag::CANCELLED);
                if self.working.revoke(&mut self.table, key) {
                    self.settle(key, -libc::ECANCELED);
                }
                return;
            }
            _ => return,
        }
        let Some(slot) = self.table.slot(key) else {
            return;
        };
        let is_timeout = matches!(slot.request().map(Operation::need), Some(Need::Clock(_)));
        self.unpark(key);
        self.settle(key, -libc::ECANCELED);
        if is_timeout {
            let table = &mut self.table;
            self.timeout_count -= 1;
            self.deadlines.tidy(self.timeout_count, |_, key| table.is_in(key, Phase::Armed));
        }
    }

    /// See [`super::Driver::cancel_descriptor`].
    pub(super) fn cancel_descriptor(&mut self, fd: RawFd) -> usize {
        let mut keys = self.table.cancellable_on(fd);
        keys.extend(self.working.naming(fd));
        for key in &keys {
            self.cancel(*key);
        }
        keys.len()
    }

    /// See [`super::Driver::has_ended`].
    pub(super) fn has_ended(&mut self, key: Key) -> bool {
        let slot = self.table.slot(key);
        slot.is_none_or(|slot| matches!(slot.phase, Phase::Settled | Phase::Done))
    }

    /// See [`super::Driver::refusal`].
    pub(super) fn refusal(&self, key: Key) -> Option<io::Error> {
        match self.finished.back() {
            Some(&(ended, result)) if ended == key => {
                matches!(-result, libc::ENOMEM | libc::ENOSPC)
                    .then(|| io::Error::from_raw_os_error(-result))
            }
            _ => None,
        }
    }

    /// See [`super::Driver::forget_now`]: on this driver operations hold no reference to a file.
    pub(super) fn forget_now(&mut self, key: Key) {
        self.forget(key);
    }

    pub(super) fn forget(&mut self, key: Key) {
        self.cancel(key);
        self.table.orphan(key);
    }

    /// Unregisters a descriptor that is about to be closed, and waits until no thread names it.
    pub(super) fn release(&mut self, fd: RawFd) {
        self.drop_named(fd);
        let deadline = Working::drain_deadline();
        // Past the deadline a call is inside the kernel, which has its own reference to the file.
        while self.working.names(fd) && Instant::now() < deadline {
            let results = self.working.collect_until(&mut self.table, deadline);
            self.take_back(results);
        }
    }

    /// Forgets a descriptor, and cancels operations that its owner has neither awaited nor dropped:
    /// they would be tried on the next file of that number.
    fn drop_named(&mut self, fd: RawFd) {
        let mut keys = self.watches.unwatch(fd);
        for pool in &self.pools {
            keys.extend(&pool.starved);
        }
        keys.extend(self.working.waiting());
        for key in keys {
            if self.table.slot(key).is_some_and(|slot| slot.names(fd)) {
                self.cancel(key);
            }
        }
    }

    /// Closes a descriptor whose operations have ended or been cancelled.
    pub(super) fn close(&mut self, fd: OwnedFd) {
        self.drop_named(fd.as_raw_fd());
        self.working.close(fd);
    }

    #[allow(clippy::unused_self)]
    pub(super) fn has_work(&self) -> bool {
        // Only the kernel knows if a descriptor became ready.
        true
    }

    /// See [`super::Driver::has_events`].
    pub(super) fn has_events(&self) -> bool {
        !(self.runnable.is_empty() && self.finished.is_empty() && self.arrived.is_empty())
            || self.pools.iter().any(Pool::can_resume_starved)
    }

    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        for pool in &mut self.pools {
            pool.feed(&mut self.table);
        }
        let has_none = self.runnable.is_empty();
        // Something can be tried without a system call. But not twice in a row: an operation that
        // fails at once and is submitted again each turn would starve all others.
        self.has_skipped = !has_none && !self.has_skipped;
        if self.has_skipped || self.resumes_starved_first() {
            self.expire();
            return Ok(());
        }
        let timeout =
            if self.has_events() { Some(Duration::ZERO) } else { self.deadlines.bound(timeout) };
        self.burst_left = limits::ACCEPTS_PER_TURN;
        self.watches.wait(timeout, &mut self.runnable)?;
        let starved: usize = self.pools.iter().map(|pool| pool.starved.len()).sum();
        self.resumes_left = self.runnable.len() + starved;
        self.expire();
        if !self.working.is_idle() {
            let results = self.working.collect(&mut self.table);
            self.take_back(results);
        }
        self.submit_waiting();
        Ok(())
    }

    /// True if starved receives are to be served before epoll is asked again: it would report each
    /// of them, to be removed and added once more. At most as many as were ready or starved when it
    /// was last asked, so that receives that starve again do not delay other descriptors.
    fn resumes_starved_first(&self) -> bool {
        self.resumes_left > 0 && self.pools.iter().any(Pool::can_resume_starved)
    }

    /// Pool threads have finished these operations.
    fn take_back(&mut self, results: Vec<(Key, io::Result<u32>)>) {
        for (key, result) in results {
            let cancelled = self.table.slot(key).is_some_and(|slot| slot.is(flag::CANCELLED));
            match outcome(result) {
                Some(result) => self.settle(key, result),
                None if cancelled => self.settle(key, -libc::ECANCELED),
                None => self.enqueue_again(key),
            }
        }
    }

    /// Hands over the operations that waited for room in the pool's queue, as far as there is room.
    fn submit_waiting(&mut self) {
        while let Some(key) = self.working.next_waiting() {
            if !self.table.is_in(key, Phase::Queued) {
                continue;
            }
            self.enqueue_again(key);
            if self.table.is_in(key, Phase::Queued) {
                self.working.move_last_to_front();
                return;
            }
        }
    }

    fn enqueue_again(&mut self, key: Key) {
        if let Some(slot) = self.table.slot(key) {
            slot.phase = Phase::Armed;
            self.enqueue(key);
        }
    }

    pub(super) fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some((key, buffer)) = self.arrived.pop_front() {
                if let Some(event) = self.deliver(key, buffer.len() as i32, true, Some(buffer)) {
                    return Some(event);
                }
                continue;
            }
            if let Some((key, result)) = self.finished.pop_front() {
                if let Some(event) = self.deliver(key, result, false, None) {
                    return Some(event);
                }
                continue;
            }
            let next = self.resume_starved().or_else(|| self.runnable.pop_front());
            let (key, interest) = next?;
            if let Some(event) = self.run(key, interest) {
                return Some(event);
            }
        }
    }

    /// The receive that has waited longest for a buffer, if one is free; watched again. Served before
    /// receives that have just become ready: otherwise they take the buffers and it keeps waiting.
    fn resume_starved(&mut self) -> Option<(Key, Interest)> {
        for kind in 0..self.pools.len() {
            while let Some(key) = self.pools[kind].next_starved() {
                self.resumes_left = self.resumes_left.saturating_sub(1);
                if self.table.is_in(key, Phase::Armed)
                    && let Some(Need::Ready(fd, interest)) = self.need(key)
                {
                    self.park(key, fd, interest);
                    return Some((key, interest));
                }
            }
        }
        None
    }

    /// Tries an operation whose descriptor is ready.
    fn run(&mut self, key: Key, interest: Interest) -> Option<Event> {
        let slot = self.table.slot(key)?;
        if slot.phase != Phase::Armed {
            return None;
        }
        match slot.shape() {
            Shape::Level | Shape::Edge => {
                self.deliver(key, interest.poll_mask() as i32, true, None)
            }
            Shape::MultiBuffer(PoolKind::Datagrams) => self.receive_messages(key),
            Shape::MultiBuffer(_) => self.receive(key),
            Shape::OnceBuffer(_) => self.receive_once(key),
            Shape::Once if matches!(slot.request(), Some(Request::Poll(_))) => {
                // This event is the poll's result.
                self.unpark(key);
                self.deliver(key, interest.poll_mask() as i32, false, None)
            }
            Shape::Once | Shape::Retried => {
                let before = self.need(key);
                let result = self.attempt(key);
                if result.is_none() && self.need(key) == before {
                    return None;
                }
                self.unpark_from(key, before);
                let Some(result) = result else {
                    // It waits for another descriptor or direction now.
                    self.enqueue(key);
                    return None;
                };
                self.deliver(key, result, false, None)
            }
            Shape::Multi => {
                let result = self.attempt(key)?;
                let more = result >= 0;
                if !more {
                    self.unpark(key);
                } else if self.burst_left > 0 {
                    // More of the same burst; past the budget the level trigger reports it again.
                    self.burst_left -= 1;
                    self.runnable.push_back((key, interest));
                }
                self.deliver(key, result, more, None)
            }
        }
    }

    fn deliver(
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

    /// Stops watching for an operation whose completions are not being taken.
    fn pause(&mut self, key: Key) {
        // Edge events merge into one: they need no pause.
        let slot = self.table.slot(key);
        if !slot.is_some_and(|slot| slot.phase == Phase::Armed && slot.shape() != Shape::Edge) {
            return;
        }
        self.unpark(key);
        if let Some(slot) = self.table.slot(key) {
            slot.set(flag::PAUSED);
            slot.phase = Phase::Unarmed;
        }
    }

    /// Resumes a paused operation: its completions have been taken.
    pub(super) fn resume(&mut self, key: Key) {
        let Some(slot) = self.table.slot(key) else {
            return;
        };
        if !slot.is(flag::PAUSED) || slot.phase != Phase::Unarmed {
            return;
        }
        slot.unset(flag::PAUSED);
        slot.phase = Phase::Armed;
        if let Some(Need::Ready(fd, interest)) = self.need(key) {
            self.park(key, fd, interest);
            if self.table.is_in(key, Phase::Armed) {
                self.runnable.push_back((key, interest));
            }
        }
    }

    fn try_now(&mut self, key: Key) {
        if let Some(result) = self.attempt(key) {
            self.settle(key, result);
        }
    }

    /// The future of an operation waits: of one that reports changes, after it has met `EAGAIN`.
    pub(super) fn rearm(&mut self, key: Key) {
        if self.table.slot(key).is_some_and(|slot| slot.shape() == Shape::Edge)
            && let Some(Need::Ready(fd, interest)) = self.need(key)
        {
            self.watches.rearm(fd, interest);
        }
    }

    fn need(&mut self, key: Key) -> Option<Need> {
        self.table.slot(key)?.request().map(Operation::need)
    }

    /// Queues an operation for its descriptor.
    fn park(&mut self, key: Key, fd: RawFd, interest: Interest) {
        // A handler does not tell that it has met `EAGAIN`, as a future does by its next poll.
        let is_edge = |slot: &mut Slot| {
            slot.shape() == Shape::Edge && (!Selector::NEEDS_REARM || slot.is_awaited())
        };
        let is_edge = self.table.slot(key).is_some_and(is_edge);
        let trigger = if is_edge { Trigger::Edge } else { Trigger::Level };
        match self.watches.park(key, fd, interest, trigger) {
            Ok(left) => left.into_iter().for_each(|key| self.settle(key, -libc::EBADF)),
            Err(error) => self.settle(key, raw_of(Err(error))),
        }
    }

    /// Removes an operation from its descriptor's queue, and a borrowed descriptor's registration.
    fn unpark(&mut self, key: Key) {
        let need = self.need(key);
        self.unpark_from(key, need);
    }

    fn unpark_from(&mut self, key: Key, need: Option<Need>) {
        let Some(request) = self.table.slot(key).map(|slot| slot.request()) else {
            return;
        };
        if let Some(Need::Ready(fd, _)) = need {
            self.watches.unpark(key, fd, request.is_some_and(Operation::is_borrowed));
        }
    }

    fn expire(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now_ns = clock::monotonic_ns();
        while let Some((_, key)) = self.deadlines.pop_due(now_ns) {
            if self.table.is_in(key, Phase::Armed) {
                self.timeout_count -= 1;
                self.settle(key, 0);
            }
        }
    }
}

impl Drop for ReadinessDriver {
    /// Closes results that have arrived and were not taken, and recycles their buffers. Waits for
    /// calls on pool threads: they cannot be stopped, and use their memory until they end.
    fn drop(&mut self) {
        if self.generation.is_inherited() {
            return;
        }
        for key in self.table.keys() {
            self.forget(key);
        }
        let deadline = Working::drain_deadline();
        while !self.working.is_idle() && Instant::now() < deadline {
            let results = self.working.collect_until(&mut self.table, deadline);
            self.take_back(results);
        }
        while self.next_event().is_some() {}
        if !self.working.is_idle() {
            self.working.abandon();
        }
    }
}
