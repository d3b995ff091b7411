//! The driver in use: the ring, readiness, or what a fork leaves of either.
//!
//! Owns: [`Driver`]. Called by: `executor`.

use super::completion::{BufferId, Event, Sink, Taken};
use super::inherited::InheritedDriver;
use super::lease::Lease;
use super::readiness::{self, ReadinessDriver};
use super::table::{Wait, flag};
use super::uring::UringDriver;
use crate::buf::PoolKind;
use crate::choice::Kind;
use crate::op::{Key, Need, Operation, Request};
use crate::sys::uring::{Features, Slot};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The driver in use, chosen at run time.
#[derive(Debug)]
pub enum Driver {
    /// Completions from `io_uring`.
    Uring(Box<UringDriver>),
    /// Readiness from epoll, and system calls of our own.
    Readiness(Box<ReadinessDriver>),
    /// None: the process is a fork of the one that had it.
    Inherited(Kind, Box<InheritedDriver>),
}

/// Run one expression on whichever driver is in use.
macro_rules! each {
    ($driver:expr, $inner:ident => $body:expr) => {
        match $driver {
            Driver::Uring($inner) => $body,
            Driver::Readiness($inner) => $body,
            Driver::Inherited(_, $inner) => $body,
        }
    };
}

impl Driver {
    /// Give up what belongs to the process that this one is a fork of: the child's memory and descriptors, and nothing
    /// that the parent's driver would notice.
    pub(crate) fn leave_to_parent(&mut self) {
        *self = Self::Inherited(self.kind(), Box::new(InheritedDriver::new()));
    }

    /// Which driver this is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Uring(_) => Kind::Uring,
            Self::Readiness(_) => Kind::Epoll,
            Self::Inherited(kind, _) => *kind,
        }
    }

    /// What the kernel's ring has beyond the required; nothing on the readiness driver.
    pub fn features(&self) -> Features {
        match self {
            Self::Uring(driver) => driver.features(),
            Self::Readiness(_) | Self::Inherited(..) => Features::default(),
        }
    }

    /// Make the calling thread the only one that may use the driver from now on. A ring stays with
    /// the first thread that bound it: binding it on another one is an error.
    pub fn bind(&mut self) -> io::Result<()> {
        each!(self, driver => driver.bind())
    }

    /// Hand a request over. It runs at the next [`Driver::wait`] at the latest.
    pub fn submit(&mut self, request: Request, sink: Sink) -> Key {
        self.submit_with(request, sink, 0)
    }

    /// As [`Driver::submit`]. Where the request's descriptor is known not to be ready (`is_patient`) it is not tried
    /// before it is.
    #[inline(always)]
    pub(crate) fn submit_as(&mut self, request: Request, sink: Sink, is_patient: bool) -> Key {
        self.submit_with(request, sink, if is_patient { flag::PATIENT } else { 0 })
    }

    #[inline(always)]
    fn submit_with(&mut self, request: Request, sink: Sink, flags: u8) -> Key {
        each!(self, driver => driver.submit_as(request, sink, flags))
    }

    /// Hand requests over as a link that the kernel runs in order, without coming back in between; they
    /// come back where the driver has no such thing.
    pub(crate) fn submit_linked(
        &mut self,
        requests: Vec<Request>,
        waker: &Waker,
    ) -> Result<Vec<Key>, Vec<Request>> {
        match self {
            Self::Uring(driver) if driver.can_link(&requests) => {
                Ok(driver.submit_linked(requests, waker))
            }
            _ => Err(requests),
        }
    }

    /// Try a request before it is submitted: always where the driver [tries first](Self::tries_first), else where it is
    /// asked for. `None`: it would block, or others wait before it, on the ring those that the kernel has not heard of;
    /// submit it.
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

    /// Whether an operation is tried by its system call before it is submitted.
    #[inline]
    pub(crate) fn tries_first(&self) -> bool {
        matches!(self, Self::Readiness(_))
    }

    /// Whether an operation that is begun now would reach the kernel by itself: no other is queued, no completion
    /// waits to be taken. Then a system call of its own saves an entry, a completion and a turn, and costs no batch.
    #[inline]
    pub(crate) fn has_no_batch(&self) -> bool {
        match self {
            Self::Uring(driver) => driver.has_no_batch(),
            Self::Readiness(_) | Self::Inherited(..) => true,
        }
    }

    /// Receive into the caller's memory without waiting, where the driver tries first; `None`: it would block, or others
    /// wait before it.
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

    /// Send from the caller's memory without waiting; `None`: it would block, or others wait before it: on the ring those
    /// that the kernel has not heard of. One that waits in the kernel for room is not asked after.
    pub(crate) fn send_first(&mut self, fd: RawFd, bytes: &[u8]) -> Option<io::Result<usize>> {
        match self {
            Self::Uring(driver) if driver.has_unsubmitted(fd) => None,
            Self::Uring(_) => readiness::receive::send(fd, bytes),
            Self::Readiness(driver) => driver.send_first(fd, bytes),
            Self::Inherited(..) => None,
        }
    }

    /// Have the ring hold on to a descriptor, where there is a ring and that can be.
    pub(crate) fn register_file(&mut self, fd: RawFd) -> Option<Slot> {
        match self {
            Self::Uring(driver) => driver.register_file(fd),
            Self::Readiness(_) | Self::Inherited(..) => None,
        }
    }

    /// Have the ring hold on to memory, where there is a ring and that can be.
    pub(crate) fn register_buffer(&mut self, memory: &mut [u8]) -> Option<Slot> {
        match self {
            Self::Uring(driver) => driver.register_buffer(memory),
            Self::Readiness(_) | Self::Inherited(..) => None,
        }
    }

    /// The result of an operation that has ended and whose event was not taken yet, where that can be seen
    /// without a system call: on the ring.
    pub fn peek(&self, key: Key) -> Option<i32> {
        match self {
            Self::Uring(driver) => driver.peek(key),
            Self::Readiness(_) | Self::Inherited(..) => None,
        }
    }

    /// Ask an operation to stop; its last completion still comes. Stale keys are ignored.
    pub fn cancel(&mut self, key: Key) {
        each!(self, driver => driver.cancel(key));
    }

    /// Ask every operation that waits for `fd` to stop; returns how many were asked. Their last completions
    /// still come. Walks the table of operations.
    pub fn cancel_descriptor(&mut self, fd: RawFd) -> usize {
        each!(self, driver => driver.cancel_descriptor(fd))
    }

    /// Ask every operation to stop; returns how many were asked. Their last completions still come.
    pub fn cancel_all(&mut self) -> usize {
        each!(self, driver => driver.cancel_all())
    }

    /// Stop an operation and hear nothing of it again; late results are given back.
    pub fn forget(&mut self, key: Key) {
        each!(self, driver => driver.forget(key));
    }

    /// As [`Driver::forget`], for an operation whose descriptor its owner may close at once: the kernel has
    /// let go of the file when this returns; with submission polling, or a full submission queue, a moment
    /// later. Costs a system call where it waited for it (ring).
    pub fn forget_now(&mut self, key: Key) {
        each!(self, driver => driver.forget_now(key));
    }

    /// Whether an operation is over, also where its last completion has yet to be taken: the kernel holds
    /// neither its file nor its memory any more. No system call; on the ring about 1 ns for each
    /// completion that waits.
    pub fn has_ended(&mut self, key: Key) -> bool {
        each!(self, driver => driver.has_ended(key))
    }

    /// Say that `fd`, whose operations are all over or cancelled, is about to be closed by other
    /// means than an operation. Without it the driver may take the next descriptor of that number
    /// for this one. Costs a system call where `fd` was waited for (readiness), or where an entry
    /// that names it has not reached the kernel yet (ring). What may name it still, on a thread or behind another operation
    /// in a link, is waited for, [`crate::limits::DRAIN_TIMEOUT_MS`] at most: [`Driver::close`] does not have to.
    pub fn release(&mut self, fd: RawFd) {
        each!(self, driver => driver.release(fd));
    }

    /// Close `fd`, whose operations are all over or given up: as [`Driver::release`] and a drop, except
    /// that a descriptor which a thread or a link may still name is closed later, and nothing waits.
    pub fn close(&mut self, fd: OwnedFd) {
        each!(self, driver => driver.close(fd));
    }

    /// Submit what is queued and wait for at least one completion, until `timeout` has passed
    /// (`None` is for ever, zero only looks), a signal arrives, or another thread wakes the driver.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        each!(self, driver => driver.wait(timeout))
    }

    /// Whether the last wait has found anything; no system call.
    pub(crate) fn has_news(&self) -> bool {
        each!(self, driver => driver.has_news())
    }

    /// The next completion for the embedder; wakes the futures whose completions it passes.
    pub fn next_event(&mut self) -> Option<Event> {
        each!(self, driver => driver.next_event())
    }

    /// Whether [`Driver::wait`] has anything to tell the kernel, or completions to look for.
    pub fn has_work(&self) -> bool {
        each!(self, driver => driver.has_work())
    }

    /// The next result of a future's operation, and with the last one what `end`, which must not call back, makes of its
    /// request; `None` where the key is stale.
    #[inline(always)]
    pub(crate) fn poll<R>(
        &mut self,
        key: Key,
        waker: &Waker,
        end: impl FnOnce(Option<Request>) -> R,
    ) -> Poll<Option<(Taken, Option<R>)>> {
        let table = each!(self, driver => driver.table_mut());
        match table.poll(key, waker, end) {
            Ok(taken) => Poll::Ready(taken),
            Err(wait) => {
                if wait == Wait::Paused {
                    each!(self, driver => driver.resume(key));
                }
                Poll::Pending
            }
        }
    }

    /// The pool to receive into where `wanted` is asked for: that one where the kernel has such buffers, and the
    /// memory for them.
    pub(crate) fn receive_pool(&mut self, wanted: PoolKind) -> PoolKind {
        match self {
            Self::Uring(driver) => driver.receive_pool(wanted),
            Self::Readiness(_) | Self::Inherited(..) => PoolKind::Streams,
        }
    }

    /// Make a pool buffer with received bytes a value of its own; `None` where it is not the driver's.
    pub(crate) fn lease(&mut self, id: BufferId) -> Option<Lease> {
        each!(self, driver => driver.lease(id))
    }

    /// Give such a buffer back; another driver's is dropped.
    pub(crate) fn give_back(&mut self, lease: Lease) {
        each!(self, driver => driver.give_back(lease));
    }

    /// The `len` bytes that a completion left in a pool buffer.
    pub fn buffer(&self, id: &BufferId, len: usize) -> &[u8] {
        each!(self, driver => driver.buffer(id, len))
    }

    /// Give a pool buffer back.
    pub fn recycle(&mut self, id: BufferId) {
        each!(self, driver => driver.recycle(id));
    }

    /// Operations whose last completion has not been taken.
    pub fn in_flight(&self) -> usize {
        each!(self, driver => driver.in_flight())
    }
}

/// Whether the kernel has yet to hear of an entry that moves bytes of the same stream, perhaps. Of files there is no
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
