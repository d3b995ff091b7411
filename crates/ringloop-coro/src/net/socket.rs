//! How a socket's read or write waits; what all sockets share.
//!
//! Owns: [`Socket`]: a socket of std's, its time limits, and hints for the next read. Called by:
//! the types of this folder. It stores no bytes.
//!
//! Byte path: from the kernel to the caller's slice, by an operation that borrows it (`borrowed`)
//! or by std's own call once the socket is ready.
//!
//! On epoll every read and write is a system call on the caller's memory. After a short read, which
//! has drained the socket, it waits first; else it calls first. On the ring:
//!
//! | a read or write | goes by | because |
//! |---|---|---|
//! | most | an operation on the caller's memory | one system call submits a whole batch |
//! | small write, nothing else ready | the call, then an operation | it would be a batch of one |
//! | large write, read after a large one | the call, then readiness | the copy is warm |
//! | with a time limit, or non-blocking | the call, then readiness | the wait may end early |
//! | of a cancelled coroutine | an operation with its own buffer | the wait may end early |

use super::borrowed;
use crate::shared_fd::{SharedFd, StdFd};
use crate::unwind::UnwindCheck;
use crate::wait::{self, block_on, park_on_op};
use crate::{coop, limits, scheduler};
use ringloop::buf::SendBuf;
use ringloop::embed::limits::{ACCEPT_PAUSE, CONNECT_PAUSE_MAX, CONNECT_PAUSE_MIN};
use ringloop::embed::op::{Poll, Send};
use ringloop::embed::sys::fd::RawFd;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::libc;
use ringloop::embed::sys::socket::is_exhaustion;
use ringloop::embed::{Op, RecvInto};
use ringloop::time;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A socket; a clone is the same socket.
pub(crate) struct Socket<S: StdFd>(Arc<SocketInner<S>>);

/// What every read and write looks at is in one cache line.
#[repr(C)]
struct SocketInner<S: StdFd> {
    /// Time limits of reads and writes; 0: forever.
    timeouts_ns: [AtomicU64; 2],
    nonblocking: AtomicBool,
    /// The last read was large: more data is likely to be there.
    bulk: AtomicBool,
    /// The last read emptied the socket: the next one has to wait.
    drained: AtomicBool,
    socket: SharedFd<S>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl<S: StdFd> Clone for Socket<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: StdFd> Deref for Socket<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0.socket
    }
}

impl<S: StdFd> Socket<S> {
    /// A socket that does not block.
    pub fn new(socket: S) -> Self {
        Self(Arc::new(SocketInner {
            timeouts_ns: Default::default(),
            nonblocking: AtomicBool::new(false),
            bulk: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            socket: SharedFd::new(socket),
        }))
    }

    /// The descriptor, for use on the current loop.
    pub fn on_loop(&self) -> RawFd {
        self.0.socket.on_loop()
    }

    /// Whether a wait may end early.
    pub fn may_time_out(&self, direction: Direction) -> bool {
        self.is_nonblocking() || self.timeout_ns(direction).load(Relaxed) != 0
    }

    /// Has calls return `WouldBlock` in place of parking.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.0.nonblocking.store(nonblocking, Relaxed);
    }

    fn is_nonblocking(&self) -> bool {
        self.0.nonblocking.load(Relaxed)
    }

    fn timeout_ns(&self, direction: Direction) -> &AtomicU64 {
        &self.0.timeouts_ns[direction as usize]
    }

    /// Sets the time limit of reads or writes; `InvalidInput` for zero.
    pub fn set_timeout(&self, direction: Direction, limit: Option<Duration>) -> io::Result<()> {
        if limit == Some(Duration::ZERO) {
            return Err(zero_timeout());
        }
        let ns = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.timeout_ns(direction).store(ns, Relaxed);
        Ok(())
    }

    /// The time limit of reads or writes.
    pub fn timeout(&self, direction: Direction) -> Option<Duration> {
        let ns = self.timeout_ns(direction).load(Relaxed);
        (ns != 0).then(|| Duration::from_nanos(ns))
    }

    /// Waits until the socket is ready.
    pub async fn ready(&self, direction: Direction) -> io::Result<()> {
        Op::new(self.poll(direction)).await.map(drop)
    }

    fn poll(&self, direction: Direction) -> Poll {
        Poll {
            fd: self.on_loop(),
            interest: match direction {
                Direction::Read => Interest::READ,
                Direction::Write => Interest::WRITE,
            },
            level: false,
        }
    }

    /// Makes a call that does not block, and waits while it returns `WouldBlock`.
    #[inline(always)]
    pub fn when_ready<T>(
        &self,
        direction: Direction,
        call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        coop::consume_budget();
        self.when_ready_by(&mut None, direction, call)
    }

    /// As [`Socket::when_ready`], with one time limit for all of a call's waits.
    #[inline(always)]
    fn when_ready_by<T>(
        &self,
        deadline: &mut Option<Instant>,
        direction: Direction,
        mut call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call(self) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.is_nonblocking() {
                        return Err(error);
                    }
                    self.wait(direction, deadline)?;
                }
                done => return done,
            }
        }
    }

    /// Makes a call that sends to another socket. No event reports room in that socket's queue
    /// (this one stays writable): the call is retried after a pause.
    pub fn when_peer_has_room<T>(
        &self,
        mut call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        coop::consume_budget();
        let (mut deadline, mut pause) = (None, CONNECT_PAUSE_MIN);
        loop {
            match call(self) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.is_nonblocking() {
                        return Err(error);
                    }
                }
                done => return done,
            }
            self.wait(Direction::Write, &mut deadline)?;
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match left {
                Some(Duration::ZERO) => return Err(timed_out()),
                left => wait::sleep(left.unwrap_or(pause).min(pause)),
            }
            pause = (pause * 2).min(CONNECT_PAUSE_MAX);
        }
    }

    /// As [`Socket::when_ready`]: for `select!`.
    pub async fn when_ready_async<T>(
        &self,
        direction: Direction,
        mut call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call(self) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.ready(direction).await?;
                }
                done => return done,
            }
        }
    }

    #[inline(always)]
    fn wait(&self, direction: Direction, deadline: &mut Option<Instant>) -> io::Result<()> {
        coop::reset_budget();
        let poll = Op::poll_first(self.poll(direction));
        match self.timeout(direction) {
            None => {
                let check = wait::check_unwinding();
                match park_on_op(poll) {
                    Ok(polled) => polled.map(drop),
                    Err(poll) => {
                        wait::unwind_if_cancelled(check);
                        block_on(poll).map(drop)
                    }
                }
            }
            Some(limit) => {
                wait_until(*deadline.get_or_insert_with(|| Instant::now() + limit), poll)
            }
        }
    }
}

/// A function of its own keeps its frame off the stacks that park without a limit.
#[inline(never)]
fn wait_until(deadline: Instant, poll: Op<Poll>) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    match block_on(time::timeout(left, poll)) {
        Ok(polled) => polled.map(drop),
        Err(time::Elapsed) => Err(timed_out()),
    }
}

/// What std returns on this system.
fn timed_out() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

impl<S: StdFd> Socket<S>
where
    for<'a> &'a S: Read + Write,
{
    /// Reads some bytes of a stream.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let inner = &*self.0;
        let is_bulk = into.len() > limits::COPIED_BYTES_MAX && inner.bulk.load(Relaxed);
        let count =
            if is_bulk || self.may_time_out(Direction::Read) || scheduler::is_readiness_driver() {
                self.read_ready(into)?
            } else {
                self.read_borrowed(into)?
            };
        update(&inner.bulk, count >= limits::COPIED_BYTES_MAX);
        update(&inner.drained, (1..into.len()).contains(&count));
        Ok(count)
    }

    /// Reads once the socket is ready; a drained socket is not tried before.
    #[inline(always)]
    fn read_ready(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut deadline = None;
        if self.0.drained.load(Relaxed) && !self.is_nonblocking() {
            self.wait(Direction::Read, &mut deadline)?;
        }
        coop::consume_budget();
        self.when_ready_by(&mut deadline, Direction::Read, |mut socket| socket.read(into))
    }

    /// Reads by an operation that borrows the caller's memory.
    #[inline(always)]
    fn read_borrowed(&self, into: &mut [u8]) -> io::Result<usize> {
        // If other coroutines are ready, bytes often arrive before the ring submits.
        let is_drained = self.0.drained.load(Relaxed) && scheduler::is_alone();
        let check = wait::check_unwinding();
        match borrowed::receive(self.on_loop(), into, is_drained) {
            Some(received) => received,
            None => self.read_copied(into, check),
        }
    }

    /// Reads for a cancelled coroutine in a destructor: by an operation that may outlive the wait.
    #[cold]
    fn read_copied(&self, into: &mut [u8], check: UnwindCheck) -> io::Result<usize> {
        wait::unwind_if_cancelled(check);
        block_on(RecvInto::new(self.on_loop(), into))
    }

    /// Writes some bytes of a stream.
    pub fn write(&self, from: &[u8]) -> io::Result<usize> {
        if from.is_empty() {
            return Ok(0);
        }
        let is_long = from.len() > limits::COPIED_BYTES_MAX;
        if is_long || self.may_time_out(Direction::Write) || scheduler::is_readiness_driver() {
            return self.when_ready(Direction::Write, |mut socket| socket.write(from));
        }
        if scheduler::is_alone() {
            coop::consume_budget();
            let mut socket: &S = self;
            match socket.write(from) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
        let check = wait::check_unwinding();
        match borrowed::send(self.on_loop(), from) {
            Some(sent) => sent,
            None => self.write_copied(from, check),
        }
    }

    /// See [`Socket::read_copied`].
    #[cold]
    fn write_copied(&self, from: &[u8], check: UnwindCheck) -> io::Result<usize> {
        wait::unwind_if_cancelled(check);
        let send = Send { fd: self.on_loop(), buf: SendBuf::from(from.to_vec()) };
        block_on(Op::new(send)).0
    }
}

/// Stores only a change: other threads read the cache line more often than it changes.
fn update(flag: &AtomicBool, holds: bool) {
    if flag.load(Relaxed) != holds {
        flag.store(holds, Relaxed);
    }
}

/// What std returns for a time limit of zero.
pub(super) fn zero_timeout() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "cannot set a 0 duration timeout")
}

/// Pauses after an accept that found no descriptor or memory: a retry at once would fail too.
pub(super) fn pause_after<T>(accepted: &io::Result<T>) {
    if accepted.as_ref().is_err_and(is_exhaustion) {
        wait::sleep(ACCEPT_PAUSE);
    }
}

/// As [`pause_after`], in a future.
pub(super) async fn after_a_pause<T>(accepted: io::Result<T>) -> io::Result<T> {
    if accepted.as_ref().is_err_and(is_exhaustion) {
        time::sleep(ACCEPT_PAUSE).await;
    }
    accepted
}
