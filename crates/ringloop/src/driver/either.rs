//! The driver in use: the ring, readiness, or, in a forked child, neither.
//!
//! Owns: [`Driver`]. Called by: `executor`.

use super::completion::{Event, Sink, Taken};
use super::readiness::{self, ReadinessDriver};
use super::table::{Phase, Table, Wait, flag};
use super::uring::UringDriver;
use crate::buf::PoolKind;
use crate::choice::Kind;
use crate::op::{Key, Need, Operation, Request};
use crate::sys::fd::{OwnedFd, RawFd};
use crate::sys::selector::Selector;
use crate::sys::uring::{Features, Slot};
use std::io;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The driver in use, chosen at run time.
#[derive(Debug)]
pub enum Driver {
    /// Completions from `io_uring`.
    Uring(Box<UringDriver>),
    /// Readiness from epoll, and system calls of our own.
    Readiness(Box<ReadinessDriver>),
    /// None: the process is a fork of the one that had it, and what was in flight is the parent's. A
    /// request submitted here never completes; the loop's next turn reports why.
    Inherited(Kind, Inherited),
}

/// Requests that never run.
#[derive(Debug)]
pub struct Inherited(Table);

/// Evaluates an expression on the driver in use, or `$otherwise` without one.
macro_rules! each {
    ($driver:expr, $inner:ident => $body:expr, $otherwise:expr) => {
        match $driver {
            Driver::Uring($inner) => $body,
            Driver::Readiness($inner) => $body,
            Driver::Inherited(..) => $otherwise,
        }
    };
}

impl Driver {
    /// Drops what belongs to the parent process after a fork(2): frees the child's memory and
    /// descriptors, without any effect on the parent's driver.
    pub(crate) fn leave_to_parent(&mut self) {
        *self = Self::Inherited(self.kind(), Inherited(Table::new()));
    }

    /// Which driver this is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Uring(_) => Kind::Uring,
            Self::Readiness(_) => Kind::Epoll,
            Self::Inherited(kind, _) => *kind,
        }
    }

    /// Optional features of the kernel's ring; empty on the readiness driver.
    pub fn features(&self) -> Features {
        match self {
            Self::Uring(driver) => driver.features(),
            Self::Readiness(_) | Self::Inherited(..) => Features::default(),
        }
    }

    /// Binds the driver to the calling thread, the only one that may use it from now on. Another
    /// thread's ring is replaced, once the driver has [left](Self::unbind) it.
    pub fn bind(&mut self) -> io::Result<()> {
        each!(self, driver => driver.bind(), Err(inherited()))
    }

    /// Ends the use of the driver by the calling thread, so that another one may bind it. What the
    /// ring has begins again when it is bound, except what cannot: with that it stays bound.
    pub fn unbind(&mut self) {
        if let Self::Uring(driver) = self {
            driver.unbind();
        }
    }

    /// Submits a request. It reaches the kernel in the next [`Driver::wait`] at the latest.
    pub fn submit(&mut self, request: Request, sink: Sink) -> Key {
        self.submit_with(request, sink, 0)
    }

    /// Like [`Driver::submit`]. If the descriptor is known not to be ready (`poll_first`), polls it
    /// first.
    #[inline(always)]
    pub(crate) fn submit_as(&mut self, request: Request, sink: Sink, poll_first: bool) -> Key {
        self.submit_with(request, sink, if poll_first { flag::POLL_FIRST } else { 0 })
    }

    #[inline(always)]
    fn submit_with(&mut self, request: Request, sink: Sink, flags: u8) -> Key {
        match self {
            Self::Uring(driver) => driver.submit_as(request, sink, flags),
            Self::Readiness(driver) => driver.submit_as(request, sink, flags),
            Self::Inherited(_, Inherited(table)) => table.insert(request, sink, flags).0,
        }
    }

    /// The ring, if it can run these requests as a link, in `entry_count` entries.
    pub(crate) fn linker<'r>(
        &mut self,
        requests: impl Iterator<Item = &'r Request>,
        entry_count: usize,
    ) -> Option<&mut UringDriver> {
        match self {
            Self::Uring(driver) => driver.can_link(requests, entry_count).then_some(driver),
            Self::Readiness(_) | Self::Inherited(..) => None,
        }
    }

    /// Tries a request before it is submitted: always if the driver [tries
    /// first](Self::tries_first), otherwise on request. `None` means submit it: it would block, or
    /// other operations wait before it (on the ring: entries that have not been submitted).
    pub(crate) fn attempt(&mut self, request: &mut Request) -> Option<i32> {
        match self {
            Self::Uring(driver) if follows_unsubmitted(driver, request) => None,
            Self::Uring(_) => {
                let Some(result) = readiness::attempt(request) else {
                    request.forget_attempt();
                    return None;
                };
                Some(request.finish(result))
            }
            Self::Readiness(driver) => driver.attempt_first(request),
            Self::Inherited(..) => None,
        }
    }

    /// True if the driver tries an operation's system call before it submits it.
    #[inline]
    pub(crate) fn tries_first(&self) -> bool {
        matches!(self, Self::Readiness(_))
    }

    /// True if an operation that begins now would reach the kernel alone: no other is queued, and
    /// no completion waits to be taken. A direct system call then saves an entry, a completion and
    /// a turn, and splits no batch.
    #[inline]
    pub(crate) fn has_no_batch(&self) -> bool {
        match self {
            Self::Uring(driver) => driver.has_no_batch(),
            Self::Readiness(_) | Self::Inherited(..) => true,
        }
    }

    /// Receives into the caller's memory without waiting, if the driver tries first. `None`: it
    /// would block, or other operations wait before it.
    pub(crate) fn receive_first(
        &mut self,
        fd: RawFd,
        into: &mut [u8],
    ) -> Option<io::Result<usize>> {
        match self {
            Self::Uring(_) | Self::Inherited(..) => None,
            Self::Readiness(driver) => driver.receive_first(fd, into),
        }
    }

    /// Sends from the caller's memory without waiting. `None`: it would block, or other operations
    /// wait before it (on the ring: entries that have not been submitted; a send that waits in the
    /// kernel is not checked).
    pub(crate) fn send_first(&mut self, fd: RawFd, bytes: &[u8]) -> Option<io::Result<usize>> {
        match self {
            Self::Uring(driver) if driver.has_unsubmitted(fd) => None,
            Self::Uring(_) => readiness::receive::send(fd, bytes),
            Self::Readiness(driver) => driver.send_first(fd, bytes),
            Self::Inherited(..) => None,
        }
    }

    /// Registers a descriptor with the ring; `None` if that is not possible.
    pub(crate) fn register_file(&mut self, fd: RawFd) -> Option<Slot> {
        match self {
            Self::Uring(driver) => driver.register_file(fd),
            Self::Readiness(_) | Self::Inherited(..) => None,
        }
    }

    /// Registers memory with the ring; `None` if that is not possible.
    pub(crate) fn register_buffer(&mut self, memory: &mut [u8]) -> Option<Slot> {
        match self {
            Self::Uring(driver) => driver.register_buffer(memory),
            Self::Readiness(_) | Self::Inherited(..) => None,
        }
    }

    /// The result of a completed operation whose event has not been taken yet, if it can be read
    /// without a system call (ring).
    pub fn peek(&self, key: Key) -> Option<i32> {
        match self {
            Self::Uring(driver) => driver.peek(key),
            Self::Readiness(_) | Self::Inherited(..) => None,
        }
    }

    /// Cancels an operation; its last completion still comes. Stale keys are ignored.
    pub fn cancel(&mut self, key: Key) {
        each!(self, driver => driver.cancel(key), ());
    }

    /// Cancels every operation that waits for `fd`; returns how many. Their last completions still
    /// come. Walks the table of operations.
    pub fn cancel_descriptor(&mut self, fd: RawFd) -> usize {
        each!(self, driver => driver.cancel_descriptor(fd), 0)
    }

    /// Cancels every operation; returns how many. Their last completions still come.
    pub fn cancel_all(&mut self) -> usize {
        if matches!(self, Self::Inherited(..)) {
            return 0;
        }
        let cancellable = self.table().cancellable().map(|(key, _)| key);
        let keys: Vec<_> = cancellable.collect();
        for key in &keys {
            self.cancel(*key);
        }
        keys.len()
    }

    /// Cancels an operation and discards its completions; late results are closed or recycled.
    pub fn forget(&mut self, key: Key) {
        each!(self, driver => driver.forget(key), self.forget_inherited(key));
    }

    /// Like [`Driver::forget`], for an operation whose owner may close the descriptor at once: the
    /// kernel has released the file when this returns (a moment later with submission polling, or
    /// with a full submission queue). Costs a system call if the operation was armed (ring).
    pub fn forget_now(&mut self, key: Key) {
        each!(self, driver => driver.forget_now(key), self.forget_inherited(key));
    }

    /// True if an operation has completed, even if its last completion has not been taken: the
    /// kernel holds neither its file nor its memory. No system call; on the ring about 1 ns for
    /// each queued completion.
    pub fn has_ended(&mut self, key: Key) -> bool {
        each!(self, driver => driver.has_ended(key), self.table_mut().slot(key).is_none())
    }

    /// The error of a poll just submitted that epoll has no memory or no room for (`ENOMEM`, and
    /// `ENOSPC` past `fs.epoll.max_user_watches`); it has ended. A ring has no such limit.
    pub fn refusal(&self, key: Key) -> Option<io::Error> {
        match self {
            Self::Readiness(driver) => driver.refusal(key),
            Self::Uring(_) | Self::Inherited(..) => None,
        }
    }

    /// On Windows the completion port of the driver as a descriptor: overlapped operations on handles
    /// that are associated with it, with the key 0, complete there. A poll of it for reading is ready while there
    /// are completions to take. Elsewhere, and after a fork, -1.
    pub fn completions(&self) -> RawFd {
        match self {
            Self::Readiness(driver) => driver.watches().completions(),
            Self::Uring(_) | Self::Inherited(..) => -1,
        }
    }

    /// The completions of such operations that waits have brought, in their order: the addresses of their
    /// `OVERLAPPED`s.
    pub fn take_completions(&mut self) -> Vec<usize> {
        match self {
            Self::Readiness(driver) => driver.watches().take_completions(),
            Self::Uring(_) | Self::Inherited(..) => Vec::new(),
        }
    }

    /// Announces that `fd`, whose operations have all ended or been cancelled, is about to be
    /// closed other than by an operation. Otherwise the driver may mistake the next descriptor of
    /// that number for this one. Costs a system call if `fd` was waited for (readiness), or if an
    /// entry that names it, or the cancel of an operation on it, has not been submitted (ring).
    ///
    /// Blocks while a thread, or an operation behind another one in a link, may still name `fd`,
    /// for [`crate::limits::DRAIN_TIMEOUT_MS`] at most; [`Driver::close`] does not block.
    pub fn release(&mut self, fd: RawFd) {
        each!(self, driver => driver.release(fd), ());
    }

    /// Closes `fd`, whose operations have all ended or been cancelled. Like [`Driver::release`] and
    /// a drop, but if a thread or a link may still name the descriptor, it is closed later and
    /// nothing blocks.
    pub fn close(&mut self, fd: OwnedFd) {
        each!(self, driver => driver.close(fd), drop(fd));
    }

    /// Submits what is queued and waits for at least one completion, until `timeout` has passed
    /// (`None`: no limit, zero: only polls), a signal arrives, or another thread wakes the driver.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        each!(self, driver => driver.wait(timeout), Err(inherited()))
    }

    /// True if the last wait found anything; no system call.
    pub(crate) fn has_events(&self) -> bool {
        each!(self, driver => driver.has_events(), false)
    }

    /// The next completion for the embedder; wakes the futures whose completions it passes.
    pub fn next_event(&mut self) -> Option<Event> {
        each!(self, driver => driver.next_event(), None)
    }

    /// True if [`Driver::wait`] has entries to submit, or completions to look for.
    pub fn has_work(&self) -> bool {
        each!(self, driver => driver.has_work(), false)
    }

    /// Takes the next result of a future's operation; with the last one also what `end`, which must
    /// not call back, makes of its request. `None` if the key is stale.
    #[inline(always)]
    pub(crate) fn poll<R>(
        &mut self,
        key: Key,
        waker: &Waker,
        end: impl FnOnce(Option<Request>) -> R,
    ) -> Poll<Option<(Taken, Option<R>)>> {
        match self.table_mut().poll(key, waker, end) {
            Ok(taken) => Poll::Ready(taken),
            Err(wait) => {
                if wait == Wait::Paused {
                    each!(self, driver => driver.resume(key), ());
                } else if Selector::NEEDS_REARM
                    && let Self::Readiness(driver) = self
                {
                    driver.rearm(key);
                }
                Poll::Pending
            }
        }
    }

    /// The pool to receive into: `wanted` if the kernel has such buffers and there is memory for
    /// them.
    pub(crate) fn receive_pool(&mut self, wanted: PoolKind) -> PoolKind {
        match self {
            Self::Uring(driver) => driver.receive_pool(wanted),
            Self::Readiness(_) | Self::Inherited(..) => PoolKind::Streams,
        }
    }

    /// Operations whose last completion has not been taken.
    pub fn in_flight(&self) -> usize {
        self.table().len()
    }

    fn table(&self) -> &Table {
        match self {
            Self::Uring(driver) => driver.table(),
            Self::Readiness(driver) => driver.table(),
            Self::Inherited(_, Inherited(table)) => table,
        }
    }

    #[inline(always)]
    fn table_mut(&mut self) -> &mut Table {
        match self {
            Self::Uring(driver) => driver.table_mut(),
            Self::Readiness(driver) => driver.table_mut(),
            Self::Inherited(_, Inherited(table)) => table,
        }
    }

    fn forget_inherited(&mut self, key: Key) {
        let table = self.table_mut();
        if let Some(slot) = table.slot(key) {
            slot.phase = Phase::Done;
            table.orphan(key);
        }
    }
}

fn inherited() -> io::Error {
    crate::Error::Inherited.into()
}

/// True if an entry that has not been submitted may move bytes of the same stream. Files have no
/// such order.
fn follows_unsubmitted(driver: &UringDriver, request: &Request) -> bool {
    match (request, request.need()) {
        (_, Need::Ready(fd, _)) => driver.has_unsubmitted(fd),
        (Request::Splice(_) | Request::Tee(_), Need::Pool(ends)) => {
            ends.into_iter().any(|fd| driver.has_unsubmitted(fd))
        }
        _ => false,
    }
}
