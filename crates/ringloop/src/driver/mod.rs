//! Layer 2: the drivers, which carry operations to the kernel and completions back.
//!
//! Owns: the choice of driver, the in-flight table, and the words both drivers share
//! ([`Key`], [`Token`], [`Sink`], [`Completion`], [`Event`]).
//! Called by: `executor`, one turn after another, always on the thread that bound the driver.
//! Never does: call out, except to wake a waker; run timers or tasks.
//!
//! Byte path: from `sys::uring` (a completion) to an [`Event`] for the embedder's handler.
//!
//! Both drivers keep one contract:
//! * a submitted request is owned by the driver until its last completion, which gives it back;
//! * `more` on a completion promises another one; a driver re-arms multishot operations itself, so
//!   that only an error, the end of a stream or a cancel ends them;
//! * after `cancel` the last completion still comes, with `ECANCELED` or with the result that won;
//! * after `forget` none comes; what the kernel still holds is kept, and what it yields is closed.

mod blocking_pool;
mod choice;
mod inherited;
mod lease;
mod lent;
mod pool;
mod readiness;
mod results;
mod table;
mod uring;
mod working;

use crate::error::Error;
use crate::limits;
use crate::op::{Need, Operation, Request};
use crate::sys::event::EventFd;
use crate::sys::uring::{Features, Slot};
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

pub(crate) use blocking_pool::{BlockingPool, Call, Place};
pub use choice::{Choice, Kind};
pub use inherited::InheritedDriver;
pub(crate) use lease::Lease;
pub use readiness::ReadinessDriver;
use table::{Wait, flag};
pub use uring::UringDriver;

/// A pool of receive buffers. A loop owns no memory of one that it never received into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// For bytes of streams.
    Streams,
    /// For datagrams with their head, or trains of them.
    Datagrams,
    /// For streams that take several buffers at a time (ring only).
    Bundles,
    /// For streams that share buffers, each a piece at a time (ring only).
    Pieces,
    /// For single receives (the ring's own; the readiness driver's are of `Streams`).
    Singles,
}

impl PoolKind {
    const COUNT: usize = 5;

    /// The name of its buffer group.
    pub const fn group(self) -> u16 {
        self as u16
    }

    const fn buffer_count(self) -> u16 {
        match self {
            Self::Streams => limits::POOL_BUFFERS,
            Self::Datagrams => limits::DATAGRAM_POOL_BUFFERS,
            Self::Bundles => limits::BUNDLE_POOL_BUFFERS,
            Self::Pieces => limits::PIECE_POOL_BUFFERS,
            Self::Singles => limits::SINGLE_POOL_BUFFERS,
        }
    }

    pub(crate) const fn buffer_len(self) -> u32 {
        match self {
            Self::Streams => limits::POOL_BUFFER_BYTES,
            Self::Datagrams => limits::DATAGRAM_POOL_BUFFER_BYTES,
            Self::Bundles => limits::BUNDLE_POOL_BUFFER_BYTES,
            Self::Pieces => limits::PIECE_POOL_BUFFER_BYTES,
            Self::Singles => limits::SINGLE_POOL_BUFFER_BYTES,
        }
    }
}

/// Names one operation in flight; stale once its last completion was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// How the ring names the operation: kind (8 bits, 0 here), generation (24), index (32).
    pub(crate) fn user_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn from_user_data(user_data: u64) -> Self {
        let generation = (user_data >> 32) as u32 & table::GENERATION_MASK;
        Self {
            index: user_data as u32,
            generation,
        }
    }
}

/// A number of the embedder's; it comes back with each completion of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// Where an operation's completions go.
#[derive(Debug)]
pub enum Sink {
    /// A future: the waker is woken and the result kept until it is polled.
    Waker(Waker),
    /// An embedder: the completion comes out of [`Driver::next_event`] as an [`Event`].
    Handler(Token),
}

/// Names a buffer of a receive pool that holds received bytes; give it back with
/// [`Driver::recycle`].
// One word of 32 bits, also where there may be none: a result and its buffer are passed on in a register.
#[derive(PartialEq, Eq)]
pub struct BufferId(NonZeroU32);

impl BufferId {
    /// Bits of the number; those above it tell the pool, counted from one.
    const INDEX_BITS: u32 = 28;

    /// `index` is the number of the buffer, or of the piece of one.
    #[inline]
    fn new(pool: PoolKind, index: u32) -> Self {
        debug_assert!(index >> Self::INDEX_BITS == 0);
        let index = index & ((1 << Self::INDEX_BITS) - 1);
        let pool = (pool as u32 + 1) << Self::INDEX_BITS;
        // Its upper bits are never 0.
        Self(NonZeroU32::new(pool | index).unwrap_or(NonZeroU32::MAX))
    }

    /// Which pool, by its number.
    #[inline]
    fn pool(&self) -> usize {
        (self.0.get() >> Self::INDEX_BITS) as usize - 1
    }

    #[inline]
    fn index(&self) -> u32 {
        self.0.get() & ((1 << Self::INDEX_BITS) - 1)
    }
}

impl std::fmt::Debug for BufferId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferId({}, {})", self.pool(), self.index())
    }
}

/// One result of an operation.
#[derive(Debug)]
pub struct Completion {
    /// As the kernel puts it: a count or descriptor, or a negated errno.
    pub result: i32,
    /// Another completion of the same operation will come.
    pub more: bool,
    /// The pool buffer that holds the received bytes.
    pub buffer: Option<BufferId>,
    /// The request, with its buffers, on the last completion.
    pub request: Option<Request>,
}

impl Completion {
    /// The result as Rust puts it.
    pub fn result(&self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }
}

/// One result of a future's operation.
#[derive(Debug)]
pub(crate) struct Taken {
    /// As [`Completion::result`].
    pub result: i32,
    /// Another one will come.
    pub more: bool,
    /// As [`Completion::buffer`].
    pub buffer: Option<BufferId>,
}

impl Taken {
    /// The result as Rust puts it.
    #[inline]
    pub fn result(&self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }
}

/// A completion on its way to the embedder.
#[derive(Debug)]
pub struct Event {
    /// The embedder's number.
    pub token: Token,
    /// The operation.
    pub key: Key,
    /// Its result.
    pub completion: Completion,
}

/// What a driver is asked for; the sizes and the polling are the ring's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub choice: Choice,
    /// A thread of the kernel takes the entries, and sleeps after so long without one.
    pub polling: Option<Duration>,
    pub entries: u32,
    pub completion_entries: u32,
}

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
    /// Set up the driver that `setup` asks for; `wake` interrupts a wait from another thread.
    /// Returns it with one sentence that says why it is the one.
    pub(crate) fn new(
        setup: &Setup,
        wake: Arc<EventFd>,
        pool: &BlockingPool,
    ) -> Result<(Self, String), Error> {
        choice::open(setup, wake, pool)
    }

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
    /// in a link, is waited for, [`limits::DRAIN_TIMEOUT_MS`] at most: [`Driver::close`] does not have to.
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
