//! What all sockets share: a blocking-shaped read and write that park the coroutine.
//!
//! Owns: [`Socket`]: a socket of std's, its time limits, and how the next read is best made. Called by: the types of
//! this folder. Never does: keep a byte; the kernel has the caller's memory for a call, or for as long as `lent` parks.
//!
//! Byte path: from the kernel to the caller's slice, by an operation that has it meanwhile (`lent`) or by std's own call
//! once the socket is ready.
//!
//! On epoll every read and write is a call on the caller's memory: after a read that left room in it first the wait, else
//! first the call. On the ring:
//!
//! | a read or write | goes by | because |
//! |---|---|---|
//! | most | an operation on the caller's memory | on the ring a whole batch of connections is one system call |
//! | small write, nobody else ready | the call, then an operation | it would be a batch of one |
//! | write above `limits::COPIED_BYTES_MAX`, read after one | the call, then readiness | it is copied while it is hot |
//! | with a time limit, or non-blocking | the call, then readiness | it may end without what it waits for |
//! | of one that is cancelled | an operation with memory of its own | it may leave at any moment |

use super::borrowed;
use crate::shared_fd::SharedFd;
use crate::unwind::UnwindCheck;
use crate::wait::{self, park_on_op};
use crate::{block_on, coop, limits, scheduler};
use ringloop::buf::SendBuf;
use ringloop::executor::{Op, RecvInto};
use ringloop::limits::{ACCEPT_PAUSE, CONNECT_PAUSE_MAX, CONNECT_PAUSE_MIN};
use ringloop::op::{Poll, Send};
use ringloop::sys::interest::Interest;
use ringloop::sys::socket::is_exhaustion;
use ringloop::time;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A socket; a clone is the same one.
pub(crate) struct Socket<S: Into<OwnedFd> + AsRawFd>(Arc<SocketInner<S>>);

/// What every read and write looks at lies together.
#[repr(C)]
struct SocketInner<S: Into<OwnedFd> + AsRawFd> {
    limits: WaitLimits,
    /// The last read was a large one: more is likely to come at once.
    bulk: AtomicBool,
    /// The last read left nothing behind: the next one has to wait.
    drained: AtomicBool,
    socket: SharedFd<S>,
}

/// What a caller may have to wait for, and how long.
#[derive(Debug, Default)]
#[repr(C)]
struct WaitLimits {
    /// In nanoseconds; 0: none.
    read_ns: AtomicU64,
    write_ns: AtomicU64,
    nonblocking: AtomicBool,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl WaitLimits {
    fn of(&self, way: Direction) -> &AtomicU64 {
        match way {
            Direction::Read => &self.read_ns,
            Direction::Write => &self.write_ns,
        }
    }

    /// Whether a wait may end without what was waited for.
    fn may_give_up(&self, way: Direction) -> bool {
        self.nonblocking.load(Relaxed) || self.of(way).load(Relaxed) != 0
    }
}

impl<S: Into<OwnedFd> + AsRawFd> Clone for Socket<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Into<OwnedFd> + AsRawFd> Deref for Socket<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0.socket
    }
}

impl<S: Into<OwnedFd> + AsRawFd + fmt::Debug> fmt::Debug for Socket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<S: Into<OwnedFd> + AsRawFd + AsFd> AsFd for Socket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<S: Into<OwnedFd> + AsRawFd + AsFd> Socket<S> {
    /// A socket that does not block.
    pub fn new(socket: S) -> Self {
        Self(Arc::new(SocketInner {
            socket: SharedFd::new(socket),
            limits: WaitLimits::default(),
            bulk: AtomicBool::new(false),
            drained: AtomicBool::new(false),
        }))
    }

    /// The number, to be used on the loop that runs.
    pub fn on_loop(&self) -> RawFd {
        self.0.socket.on_loop()
    }

    /// The descriptor itself where no loop knows it, else one of its own.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        self.0.socket.duplicate()
    }

    /// Whether a call may end without what it waits for.
    pub fn may_give_up(&self, way: Direction) -> bool {
        self.0.limits.may_give_up(way)
    }

    /// Whether calls return `WouldBlock` in place of parking.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.0.limits.nonblocking.store(nonblocking, Relaxed);
    }

    /// How long a read or write parks at most.
    pub fn set_timeout(&self, way: Direction, limit: Option<Duration>) -> io::Result<()> {
        if limit == Some(Duration::ZERO) {
            let error = "cannot set a 0 duration timeout";
            return Err(io::Error::new(ErrorKind::InvalidInput, error));
        }
        let ns = limit.map_or(0, |limit| {
            u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)
        });
        self.0.limits.of(way).store(ns, Relaxed);
        Ok(())
    }

    /// How long a read or write parks at most.
    pub fn timeout(&self, way: Direction) -> Option<Duration> {
        let ns = self.0.limits.of(way).load(Relaxed);
        (ns != 0).then(|| Duration::from_nanos(ns))
    }

    /// A future that is ready when the socket is.
    pub fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<()>> + '_ {
        let socket = self.clone();
        async move {
            let poll = Poll {
                fd: socket.on_loop(),
                interest,
                level: false,
            };
            Op::new(poll).await.map(drop)
        }
    }

    /// Make a call that does not block, and wait where it would.
    #[inline(always)]
    pub fn when_ready<T>(
        &self,
        way: Direction,
        call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        coop::consume_budget();
        self.when_ready_by(&mut None, way, call)
    }

    /// The same, of a call that may have begun to wait before; its time limit is one for all of its waits.
    #[inline(always)]
    fn when_ready_by<T>(
        &self,
        deadline: &mut Option<Instant>,
        way: Direction,
        mut call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call(self) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.0.limits.nonblocking.load(Relaxed) {
                        return Err(error);
                    }
                    self.wait(way, deadline)?;
                }
                done => return done,
            }
        }
    }

    /// Make a call that sends to whom it names. Where that one's queue is full nobody tells of room: this socket is
    /// writable all the while, and the call is made again after a pause.
    pub fn when_peer_has_room<T>(
        &self,
        mut call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        coop::consume_budget();
        let (mut deadline, mut pause) = (None, CONNECT_PAUSE_MIN);
        loop {
            match call(self) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.0.limits.nonblocking.load(Relaxed) {
                        return Err(error);
                    }
                }
                done => return done,
            }
            self.wait(Direction::Write, &mut deadline)?;
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match left {
                Some(Duration::ZERO) => return Err(time_is_up()),
                left => wait::sleep(left.unwrap_or(pause).min(pause)),
            }
            pause = (pause * 2).min(CONNECT_PAUSE_MAX);
        }
    }

    /// As [`Socket::when_ready`], as a future: for `select!`.
    pub async fn when_ready_async<T>(
        &self,
        way: Direction,
        mut call: impl FnMut(&S) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call(self) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.ready(interest(way)).await?;
                }
                done => return done,
            }
        }
    }

    #[inline(always)]
    fn wait(&self, way: Direction, deadline: &mut Option<Instant>) -> io::Result<()> {
        coop::reset_budget();
        let poll = Poll {
            fd: self.on_loop(),
            interest: interest(way),
            level: false,
        };
        let poll = Op::patient(poll);
        match self.timeout(way) {
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
            Some(limit) => wait_until(
                *deadline.get_or_insert_with(|| Instant::now() + limit),
                poll,
            ),
        }
    }
}

/// Apart, so that what parks without a limit keeps none of this on its stack.
#[inline(never)]
fn wait_until(deadline: Instant, poll: Op<Poll>) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    match block_on(time::timeout(left, poll)) {
        Ok(polled) => polled.map(drop),
        Err(time::Elapsed) => Err(time_is_up()),
    }
}

/// As std has it on this system.
fn time_is_up() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

impl<S: Into<OwnedFd> + AsRawFd + AsFd> Socket<S>
where
    for<'a> &'a S: Read + Write,
{
    /// Read some bytes of a stream.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let inner = &*self.0;
        let is_bulk = into.len() > limits::COPIED_BYTES_MAX && inner.bulk.load(Relaxed);
        let count =
            if is_bulk || self.may_give_up(Direction::Read) || scheduler::is_readiness_driver() {
                self.read_ready(into)?
            } else {
                self.read_lent(into)?
            };
        note(&inner.bulk, count >= limits::COPIED_BYTES_MAX);
        note(&inner.drained, (1..into.len()).contains(&count));
        Ok(count)
    }

    /// Read into the caller's memory, once the socket is ready: what the last read has emptied is not tried before.
    #[inline(always)]
    fn read_ready(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut deadline = None;
        let limits = &self.0.limits;
        if self.0.drained.load(Relaxed) && !limits.nonblocking.load(Relaxed) {
            self.wait(Direction::Read, &mut deadline)?;
        }
        coop::consume_budget();
        self.when_ready_by(&mut deadline, Direction::Read, |mut socket| {
            socket.read(into)
        })
    }

    /// Read by an operation that has the caller's memory for as long as this takes.
    #[inline(always)]
    fn read_lent(&self, into: &mut [u8]) -> io::Result<usize> {
        // Where others are ready, bytes are often there by the time the ring looks.
        let is_empty = self.0.drained.load(Relaxed) && scheduler::is_alone();
        let check = wait::check_unwinding();
        match borrowed::receive(self.on_loop(), into, is_empty) {
            Some(received) => received,
            None => self.read_copied(into, check),
        }
    }

    /// As a cancelled one reads in a destructor, where it does not unwind: by an operation that may outlive the wait.
    #[cold]
    fn read_copied(&self, into: &mut [u8], check: UnwindCheck) -> io::Result<usize> {
        wait::unwind_if_cancelled(check);
        block_on(RecvInto::new(self.on_loop(), into))
    }

    /// Write some bytes of a stream.
    pub fn write(&self, from: &[u8]) -> io::Result<usize> {
        if from.is_empty() {
            return Ok(0);
        }
        let is_long = from.len() > limits::COPIED_BYTES_MAX;
        if is_long || self.may_give_up(Direction::Write) || scheduler::is_readiness_driver() {
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
        let send = Send {
            fd: self.on_loop(),
            buf: SendBuf::from(from.to_vec()),
        };
        block_on(Op::new(send)).0
    }
}

/// Store what mostly is so already: the line is read by others more often than it changes.
fn note(flag: &AtomicBool, holds: bool) {
    if flag.load(Relaxed) != holds {
        flag.store(holds, Relaxed);
    }
}

fn interest(way: Direction) -> Interest {
    match way {
        Direction::Read => Interest::READ,
        Direction::Write => Interest::WRITE,
    }
}

/// Where a listener found no descriptor or memory, wait a little: who asks again at once would find the same.
pub(super) fn pause_after<T>(accepted: &io::Result<T>) {
    if accepted.as_ref().is_err_and(is_exhaustion) {
        wait::sleep(ACCEPT_PAUSE);
    }
}

/// As [`pause_after`], of a future.
pub(super) async fn after_a_pause<T>(accepted: io::Result<T>) -> io::Result<T> {
    if accepted.as_ref().is_err_and(is_exhaustion) {
        time::sleep(ACCEPT_PAUSE).await;
    }
    accepted
}
