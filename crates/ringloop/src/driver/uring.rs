//! The ring driver: operations as submission entries, results as completions.
//!
//! Owns: the ring, its provided buffers, the set of borrowed descriptors, and operations that wait
//! for room or for a re-arm. Called by: `Driver`. Makes no data system call of its own; only `enter`,
//! and those of the set (`borrowed`).
//!
//! # Invariants
//! 1. An entry is pushed only with its request in the slot, so its pointers outlive the operation.
//! 2. Every completion without `F_MORE` of an operation that was neither cancelled nor failed
//!    re-arms the operation (multishot) or ends it (single-shot, and a receive on a borrowed
//!    descriptor).
//! 3. An entry that names a descriptor reaches the kernel before that descriptor is released. An
//!    operation whose descriptor the kernel looks up later (`late`) ends before it is closed: the
//!    next file may get the same number.
//! 4. Dropping the driver cancels and reaps everything before a buffer is freed: closing a ring
//!    does not stop the kernel from writing. What does not end in time is leaked, never freed.
//! 5. A completion's buffers are claimed once, as it is popped, and for the pool that its
//!    operation's entry named.

mod binding;
mod borrowed;
mod borrowed_set;
mod bundle;
mod cancel;
mod completions;
mod late;
mod link;
mod number;
mod registered;
mod release;

use self::borrowed_set::BorrowedSet;
use self::late::LateLookups;
use self::number::{DESCRIPTORS_MAX, DRAIN_STEP, KIND_WAKE};
use self::registered::Registered;
use super::completion::{Event, Sink};
use super::provided::ProvidedPools;
use super::table::{Phase, Slot, Table, flag};
use crate::buf::PoolKind;
use crate::limits;
use crate::op::{Key, NO_FD, Need, Operation, Request, Shape, raw_of};
use crate::sys::clock;
use crate::sys::event::EventFd;
use crate::sys::fd::{AsRawFd, RawFd};
use crate::sys::fork::Generation;
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::pool::PoolBuffer;
use crate::sys::refused::RefusedCall;
use crate::sys::uring::abi::{self, Cqe, Sqe};
use crate::sys::uring::{self, Cause, Config, Features, Refusal, Ring};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Longest wait while the kernel lacks the memory to take what is queued, or for a poll.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// The ring, and everything in flight on it.
#[derive(Debug)]
pub struct UringDriver {
    ring: Ring,
    table: Table,
    /// Freed by hand: leaked if the kernel may still write to it (invariant 4).
    pools: ProvidedPools,
    generation: Generation,
    wake: Arc<EventFd>,
    wake_armed: bool,
    /// How the ring is set up.
    config: Config,
    /// The thread that uses the driver.
    bound: Option<ThreadId>,
    /// The thread that entered the ring first, the only one that can.
    ring_thread: Option<ThreadId>,
    /// Operations (and cancels of them) that found the submission queue full, or that came before
    /// the ring was bound, in order.
    backlog: VecDeque<Entry>,
    /// Descriptors named by entries on the submission queue (invariant 3).
    unsubmitted: Vec<RawFd>,
    /// Level polls whose completion was handed out: re-armed at the next wait.
    rearm_later: Vec<Key>,
    /// Repeating polls for which the kernel had no memory: re-armed at `retry_at_ns`.
    refused_polls: Vec<Key>,
    /// When to try them again, and the wake's; 0 if none was refused.
    retry_at_ns: u64,
    /// Operations whose cancels the kernel may not have carried out: they hold their files open.
    cancelling: Vec<Key>,
    /// Cancelled operations of links, which may not have begun yet.
    late_cancels: Vec<Key>,
    /// One of them may have begun since its cancel was sent.
    may_have_begun: bool,
    /// Operations whose descriptors the kernel has not looked up yet (invariant 3).
    late: LateLookups,
    /// Registered files and buffers; empty unless used.
    registered: Registered,
    /// Polls of descriptors that others may close.
    borrowed: BorrowedSet,
    /// Results made here, not by the kernel: cancels of operations that were not armed.
    synthetic: VecDeque<(Key, i32)>,
    /// Completions taken as the driver left its thread.
    early: VecDeque<Event>,
}

/// An entry of the backlog.
#[derive(Debug)]
enum Entry {
    Operation(Key),
    Cancel(Key),
    /// Cancel everything on a descriptor.
    CancelDescriptor(RawFd),
    /// Operations that are submitted together.
    Link(Vec<Key>),
}

impl UringDriver {
    /// Creates a ring, disabled until [`UringDriver::bind`]; a refusal names cause and remedy.
    pub(super) fn new(wake: Arc<EventFd>, config: &Config) -> Result<Self, Refusal> {
        let ring = Ring::new(config)?;
        let mut pools = ProvidedPools::default();
        // The other pools are opened on first use.
        pools.open(&ring, PoolKind::Streams).map_err(|error| Refusal {
            cause: match RefusedCall::of(&error) {
                Some(refused) => Cause::Call(refused.clone()),
                None => Cause::Other(error.raw_os_error().unwrap_or(libc::EIO)),
            },
        })?;
        Ok(Self {
            ring,
            table: Table::new(),
            pools,
            generation: Generation::current(),
            wake,
            wake_armed: false,
            config: *config,
            bound: None,
            ring_thread: None,
            backlog: VecDeque::new(),
            unsubmitted: Vec::new(),
            rearm_later: Vec::new(),
            refused_polls: Vec::new(),
            retry_at_ns: 0,
            cancelling: Vec::new(),
            late_cancels: Vec::new(),
            may_have_begun: false,
            late: LateLookups::default(),
            registered: Registered::default(),
            borrowed: BorrowedSet::new(),
            synthetic: VecDeque::new(),
            early: VecDeque::new(),
        })
    }

    pub(super) fn features(&self) -> Features {
        self.ring.features()
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    pub(super) fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    #[inline(always)]
    pub(super) fn submit_as(&mut self, request: Request, sink: Sink, flags: u8) -> Key {
        let may_arm = self.bound.is_some() && self.backlog.is_empty() && self.has_room();
        let (key, slot) = self.table.insert(request, sink, flags);
        // The common case: an entry that names one descriptor and no pool.
        if may_arm
            && slot.shape() == Shape::Once
            && let Some(Need::Ready(fd, _)) = slot.request().map(Operation::need)
        {
            self.unsubmitted.push(fd);
            push_operation(&mut self.ring, slot, key);
        } else if !(self.begin_borrowed(key) || may_arm && self.arm(key)) {
            self.backlog.push_back(Entry::Operation(key));
        }
        key
    }

    /// True if an entry that has not been submitted may name `fd`.
    pub(super) fn has_unsubmitted(&self, fd: RawFd) -> bool {
        self.unsubmitted.contains(&fd) || !self.backlog.is_empty()
    }

    /// See [`super::Driver::peek`].
    pub fn peek(&self, key: Key) -> Option<i32> {
        self.ring.peek(key.user_data()).map(|cqe| cqe.res)
    }

    /// See [`super::Driver::has_ended`].
    pub(super) fn has_ended(&mut self, key: Key) -> bool {
        match self.table.slot(key) {
            Some(slot) if slot.phase == Phase::Armed => self.ring.peek(key.user_data()).is_some(),
            Some(slot) => matches!(slot.phase, Phase::Settled | Phase::Done),
            None => true,
        }
    }

    /// Ends an operation with a result of the driver's own.
    fn settle(&mut self, key: Key, result: i32) {
        if let Some(slot) = self.table.slot(key) {
            slot.phase = Phase::Settled;
            self.synthetic.push_back((key, result));
        }
    }

    /// Invariant 3. Only cancelled operations may still name `fd`, and their cancels follow.
    fn hand_over_named(&mut self, fd: RawFd) {
        self.drop_named(fd);
        if self.unsubmitted.contains(&fd) {
            // An error here occurs again, and is reported, at the next wait.
            drop(self.hand_over());
        }
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let submitted = self.ring.submit();
        self.forget_submitted();
        submitted
    }

    fn forget_submitted(&mut self) {
        if self.ring.pending() > 0 {
            self.end_split_link();
        }
        self.forget_taken();
    }

    /// Drops the descriptors of entries that the kernel has taken. With submission polling, some of
    /// a steady stream may always be left.
    fn forget_taken(&mut self) {
        let named_max = DESCRIPTORS_MAX * self.ring.pending() as usize;
        let taken_count = self.unsubmitted.len().saturating_sub(named_max);
        // In the order of the entries.
        self.unsubmitted.drain(..taken_count);
    }

    /// See [`super::Driver::has_no_batch`].
    pub(super) fn has_no_batch(&self) -> bool {
        self.ring.pending() == 0 && self.ring.ready() == 0 && self.backlog.is_empty()
    }

    pub(super) fn has_work(&self) -> bool {
        self.ring.pending() > 0
            || self.ring.ready() > 0
            || self.ring.needs_enter()
            || !self.synthetic.is_empty()
            || !self.early.is_empty()
            || !self.rearm_later.is_empty()
            || self.borrowed.needs_poll()
            || self.borrowed.has_ready()
            || self.retry_at_ns != 0
            || !self.backlog.is_empty()
            || self.pools.can_resume_starved()
    }

    pub(super) fn wait(&mut self, mut timeout: Option<Duration>) -> io::Result<()> {
        if self.borrowed.has_brief() {
            timeout = self.move_brief(timeout);
        }
        self.prepare_to_wait();
        let look_only = timeout == Some(Duration::ZERO);
        if self.has_events() || look_only {
            if self.ring.pending() == 0 && !self.ring.needs_enter() {
                self.forget_taken();
                return Ok(());
            }
            return self.enter(0, Some(Duration::ZERO));
        }
        let is_armed = self.wake_armed && !self.borrowed.needs_poll();
        if is_armed && self.backlog.is_empty() && self.retry_at_ns == 0 {
            return self.enter(1, timeout);
        }
        // An operation could not be queued, and may be what would end the wait.
        let timeout = timeout.map_or(RETRY_AFTER, |timeout| timeout.min(RETRY_AFTER));
        self.enter(1, Some(timeout))
    }

    /// See [`super::Driver::has_events`].
    pub(super) fn has_events(&self) -> bool {
        self.ring.ready() > 0
            || !self.synthetic.is_empty()
            || !self.early.is_empty()
            || self.borrowed.has_ready()
    }

    fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        let entered = self.ring.enter(want, timeout);
        self.forget_submitted();
        // A thread of the kernel that polls carries them out soon, and some may always be left.
        if self.ring.polls() || (self.ring.pending() == 0 && self.backlog.is_empty()) {
            self.cancelling.clear();
        }
        if want > 0 && self.ring.pending() > 0 && self.ring.ready() == 0 && !self.ring.polls() {
            // It has not waited: without memory it takes no entry, and returns at once.
            thread::sleep(timeout.map_or(RETRY_AFTER, |timeout| timeout.min(RETRY_AFTER)));
        }
        entered
    }

    /// The kernel had no memory for a poll. Another one at once would fail the same way.
    #[cold]
    fn retry_later(&mut self) {
        if self.retry_at_ns == 0 {
            self.retry_at_ns = clock::monotonic_ns() + RETRY_AFTER.as_nanos() as u64;
        }
    }

    #[cold]
    fn retry_refused(&mut self) {
        if clock::monotonic_ns() < self.retry_at_ns {
            return;
        }
        self.retry_at_ns = 0;
        for key in std::mem::take(&mut self.refused_polls) {
            self.rearm(key);
        }
    }

    /// Registers a descriptor, if possible.
    pub fn register_file(&mut self, fd: RawFd) -> Option<uring::Slot> {
        self.registered.file(&self.ring, fd)
    }

    /// Registers memory, if possible.
    pub fn register_buffer(&mut self, memory: &mut [u8]) -> Option<uring::Slot> {
        self.registered.buffer(&self.ring, memory)
    }

    /// Queues everything that has to be submitted before a wait.
    fn prepare_to_wait(&mut self) {
        if self.retry_at_ns != 0 {
            self.retry_refused();
        }
        if !self.wake_armed && self.retry_at_ns == 0 {
            self.arm_wake();
        }
        if self.borrowed.needs_poll() && self.retry_at_ns == 0 {
            self.poll_set();
        }
        if self.may_have_begun {
            self.cancel_late();
        }
        self.registered.empty_returned(&self.ring);
        for index in 0..self.rearm_later.len() {
            self.rearm(self.rearm_later[index]);
        }
        self.rearm_later.clear();
        for key in self.pools.collect(&mut self.table) {
            self.resume_starved(key);
        }
        while let Some(entry) = self.backlog.front() {
            let done = match *entry {
                Entry::Link(ref keys) => {
                    let keys = keys.clone();
                    self.arm_linked(&keys)
                }
                Entry::Operation(key) => self.arm(key),
                Entry::Cancel(key) => self.push_cancel(key),
                Entry::CancelDescriptor(fd) => self.push_cancel_descriptor(fd),
            };
            if !done {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Buffers are back: re-arms a receive that had run out of them, now or from the backlog.
    fn resume_starved(&mut self, key: Key) {
        let Some(slot) = self.table.slot(key) else {
            return;
        };
        if slot.request().is_some_and(Operation::rearms) {
            self.rearm(key);
        } else if slot.phase == Phase::Unarmed {
            self.settle(key, -libc::ENOBUFS);
        }
    }

    fn rearm(&mut self, key: Key) {
        match self.table.slot(key) {
            Some(slot) if slot.phase == Phase::Unarmed && !slot.is(flag::PAUSED) => {}
            _ => return,
        }
        let may_arm = self.bound.is_some() && self.backlog.is_empty();
        let is_armed = self.watch_borrowed(key) || may_arm && self.arm(key);
        if !is_armed {
            self.backlog.push_back(Entry::Operation(key));
        }
    }

    /// Pushes an operation's entry, written in place in the queue; `false` if the submission queue
    /// stays full. A key that is stale or was cancelled meanwhile needs nothing and counts as done.
    fn arm(&mut self, key: Key) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(slot) = self.table.slot(key) else {
            return true;
        };
        if !matches!(slot.phase, Phase::Queued | Phase::Unarmed) {
            return true;
        }
        let shape = slot.shape();
        let pool = shape.pool();
        let Some(request) = slot.request_mut() else {
            return true;
        };
        match request.need() {
            Need::Ready(fd, _) => {
                if let Some(kind) = pool
                    && let Err(error) = self.pools.open(&self.ring, kind)
                {
                    self.settle(key, raw_of(Err(error)));
                    return true;
                }
                self.unsubmitted.push(fd);
                if shape == Shape::Retried {
                    self.late.note(key, [fd, NO_FD]);
                }
            }
            Need::Pool(fds) => {
                if let Some(feature) = request.wants()
                    && !self.ring.features().has(feature)
                {
                    let result = request.work();
                    self.settle(key, raw_of(result));
                    return true;
                }
                self.unsubmitted.extend(fds);
                self.late.note(key, fds);
            }
            Need::Cancel(target) => return self.arm_cancel(key, target),
            Need::Nothing | Need::Clock(_) => {}
        }
        push_operation(&mut self.ring, slot, key)
    }

    fn arm_wake(&mut self) {
        // Edge-triggered on purpose: every notification completes it, and the counter need not be
        // read.
        let sqe = Sqe {
            opcode: abi::IORING_OP_POLL_ADD,
            fd: self.wake.as_raw_fd(),
            len: abi::IORING_POLL_ADD_MULTI,
            op_flags: Interest::READ.poll_mask(),
            user_data: KIND_WAKE << 56,
            ..Sqe::default()
        };
        self.wake_armed = self.push(sqe);
    }

    /// Pushes all entries, or none of them.
    fn push_linked(&mut self, entries: &[Sqe]) -> bool {
        // SAFETY: invariant 1, as in `push_operation`.
        if unsafe { self.ring.push_all(entries) } {
            return true;
        }
        if self.bound.is_none() || self.hand_over().is_err() {
            return false;
        }
        // SAFETY: as above.
        unsafe { self.ring.push_all(entries) }
    }

    fn push(&mut self, sqe: Sqe) -> bool {
        // SAFETY: the driver's own entries point at nothing.
        self.has_room() && unsafe { self.ring.push(sqe) }.is_ok()
    }

    /// True if the submission queue takes another entry; a full one is submitted first.
    #[inline(always)]
    fn has_room(&mut self) -> bool {
        self.ring.has_room() || self.make_room()
    }

    #[cold]
    fn make_room(&mut self) -> bool {
        self.bound.is_some() && self.hand_over().is_ok() && self.ring.has_room()
    }
}

/// Pushes the entry of an operation, whose request is in its slot, on a queue with room for it.
#[inline]
fn push_operation(ring: &mut Ring, slot: &mut Slot, key: Key) -> bool {
    let poll_first = slot.is(flag::POLL_FIRST);
    let Some(request) = slot.request_mut() else {
        return true;
    };
    let fill = |sqe: &mut Sqe| {
        sqe.user_data = key.user_data();
        request.prepare(sqe);
        if poll_first
            && matches!(
                sqe.opcode,
                abi::IORING_OP_RECV | abi::IORING_OP_SEND | abi::IORING_OP_SENDMSG
            )
        {
            sqe.ioprio |= abi::IORING_RECVSEND_POLL_FIRST;
        }
    };
    // SAFETY: invariant 1; what the entry points at stays in the table until the last completion.
    let pushed = unsafe { ring.push_with(fill) };
    if pushed {
        slot.phase = Phase::Armed;
    }
    pushed
}

impl Drop for UringDriver {
    fn drop(&mut self) {
        if self.generation.is_inherited() {
            // SAFETY: freed once, here; the kernel writes to the parent's memory, not to this copy of it.
            unsafe { self.pools.free() };
            return;
        }
        for key in self.table.keys() {
            self.forget(key);
        }
        let deadline_ns = clock::monotonic_ns() + limits::DRAIN_TIMEOUT_MS * 1_000_000;
        loop {
            while self.next_event().is_some() {}
            let late = clock::monotonic_ns() >= deadline_ns;
            if self.table.len() == 0 || late {
                break;
            }
            // If the application has closed the ring's descriptor, waiting fails, but the slot
            // still takes cancels.
            if self.wait(Some(DRAIN_STEP)).is_err() && self.enter(0, Some(Duration::ZERO)).is_err()
            {
                break;
            }
        }
        self.late.abandon();
        // Polls and accepts can be left to the end of the ring; operations that use memory cannot.
        if self.table.exposes_memory() {
            let left_count = self.table.len();
            // Invariant 4: the kernel may still write to these buffers.
            eprintln!(
                "ringloop: {left_count} operations did not end within {} ms of their cancel, or the \
                 driver was dropped on another thread than its own; their buffers are leaked",
                limits::DRAIN_TIMEOUT_MS
            );
            self.table.leak();
            return;
        }
        // SAFETY: freed once, here, and nothing in flight names a group any more.
        unsafe { self.pools.free() };
    }
}

/// Frees the pools of a ring without operations (invariant 1 of `binding`).
fn free(mut pools: ProvidedPools) {
    // SAFETY: freed once, here, and nothing in flight names a group.
    unsafe { pools.free() };
}

/// Claims the buffer that a completion names; once, as it is popped (invariant 5).
#[inline]
fn claim(pools: &mut ProvidedPools, kind: PoolKind, cqe: &Cqe) -> Option<PoolBuffer> {
    // SAFETY: invariant 5.
    unsafe { pools.claim(kind, cqe) }
}

/// Claims the buffers that a bundle's completion names, like [`claim`].
fn claim_bundle(pools: &mut ProvidedPools, cqe: &Cqe) -> Vec<PoolBuffer> {
    // SAFETY: invariant 5.
    unsafe { pools.claim_bundle(cqe) }
}

#[cfg(test)]
mod tests;
