//! Linked operations: each begins when the one before it has succeeded.
//!
//! Owns: [`Link`] (the builder), [`Linked`] (its future). Called by: applications, `fs`. What
//! counts as success is the kernel's rule, implemented in `op`.
//!
//! On the ring the kernel runs the whole link and returns once; on the readiness driver the future
//! runs the operations in sequence, with the same results:
//! * an operation that fails ends the link: those behind it do not begin, and end with `ECANCELED`;
//! * so does a transfer that moves less than its buffer holds (a read at the end of a file, a short
//!   write or splice); a receive from a socket may be short;
//! * a send that the kernel stops waiting for (`EAGAIN`, `EINTR`; rare, on Unix sockets) ends the link
//!   on the ring, as the operations behind it have ended by then; outside a link it would be re-armed;
//! * an operation bounded by [`Link::timeout`] that has not ended in time is cancelled, and ends with
//!   `ETIMEDOUT`; if it completed after all, with its own result.
//!
//! # Invariants
//! 1. The bytes that the write of a [`ReadThenWrite`] sends were filled by the read before it.
//! 2. A descriptor that a link was to close is closed once, and by the driver, which may still name
//!    its number: on a pool thread, in the queue, or in an epoll registration.

use crate::buf::{RecvBuf, Shared};
use crate::driver::{Key, Sink};
use crate::executor::runtime::local::{Local, poll_outcome};
use crate::executor::task::listed::waiting;
use crate::op::{Close, Kind, Operation, Outcome, Read, Request, Timeout, Write, raw_of};
use crate::sys::fd::{FromRawFd, OwnedFd, RawFd};
use crate::sys::libc;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// One operation of a link.
#[derive(Debug)]
pub struct Step {
    request: Request,
    limit: Option<Duration>,
}

/// Operations in order, and the outputs made of their results.
pub trait Chain {
    /// Output of the awaited link.
    type Outputs;

    /// State that the outputs need in addition to the results.
    type Rest;

    /// The requests, in order.
    fn into_steps(self, steps: &mut Vec<Step>) -> Self::Rest;

    /// The results, in order.
    fn outputs(rest: Self::Rest, outcomes: &mut dyn Iterator<Item = Outcome>) -> Self::Outputs;
}

/// The first operation of a link.
#[derive(Debug)]
pub struct First<K>(K);

/// A link with one more operation; its outputs are nested to the left: `((a, b), c)`.
#[derive(Debug)]
pub struct Then<C, K>(C, K);

/// A link whose last operation has a time limit.
#[derive(Debug)]
pub struct Limited<C>(C, Duration);

/// A read whose bytes are written once they have arrived.
#[derive(Debug)]
pub struct ReadThenWrite {
    read: Read,
    to: RawFd,
    offset: Option<u64>,
}

/// The buffer that a read and a write share.
#[derive(Debug)]
pub struct Hold(Shared);

fn next(outcomes: &mut dyn Iterator<Item = Outcome>) -> Outcome {
    outcomes.next().unwrap_or_else(|| Outcome { result: Err(cancelled()), request: None })
}

fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

impl<K: Kind> Chain for First<K> {
    type Outputs = K::Output;
    type Rest = ();

    fn into_steps(self, steps: &mut Vec<Step>) {
        let request = self.0.into_request();
        steps.push(Step { request, limit: None });
    }

    fn outputs((): (), outcomes: &mut dyn Iterator<Item = Outcome>) -> K::Output {
        K::output(next(outcomes))
    }
}

impl<C: Chain, K: Kind> Chain for Then<C, K> {
    type Outputs = (C::Outputs, K::Output);
    type Rest = C::Rest;

    fn into_steps(self, steps: &mut Vec<Step>) -> C::Rest {
        let rest = self.0.into_steps(steps);
        First(self.1).into_steps(steps);
        rest
    }

    fn outputs(rest: C::Rest, outcomes: &mut dyn Iterator<Item = Outcome>) -> Self::Outputs {
        let before = C::outputs(rest, outcomes);
        (before, K::output(next(outcomes)))
    }
}

impl<C: Chain> Chain for Limited<C> {
    type Outputs = C::Outputs;
    type Rest = C::Rest;

    fn into_steps(self, steps: &mut Vec<Step>) -> C::Rest {
        let rest = self.0.into_steps(steps);
        if let Some(last) = steps.last_mut() {
            last.limit = Some(self.1);
        }
        rest
    }

    fn outputs(rest: C::Rest, outcomes: &mut dyn Iterator<Item = Outcome>) -> Self::Outputs {
        C::outputs(rest, outcomes)
    }
}

impl Chain for ReadThenWrite {
    type Outputs = (io::Result<usize>, io::Result<usize>, RecvBuf);
    type Rest = Hold;

    fn into_steps(self, steps: &mut Vec<Step>) -> Hold {
        // SAFETY: invariant 1: only the write looks at its bytes, and it begins after a full read.
        let (into, from, shared) = unsafe { Shared::share(self.read.buf) };
        let read = Read { buf: into, ..self.read };
        let write = Write { fd: self.to, buf: from, offset: self.offset };
        First(read).into_steps(steps);
        First(write).into_steps(steps);
        Hold(shared)
    }

    fn outputs(Hold(shared): Hold, outcomes: &mut dyn Iterator<Item = Outcome>) -> Self::Outputs {
        let (read, into) = Read::output(next(outcomes));
        let (written, from) = Write::output(next(outcomes));
        let filled = into.filled().len();
        drop((into, from));
        // SAFETY: the read's half counted this many bytes at the start of the same memory.
        let buf = unsafe { shared.into_buf(filled) };
        (read, written, buf.unwrap_or_else(|| RecvBuf::with_capacity(0)))
    }
}

/// Operations that run in order, each if the one before it has succeeded.
///
/// Awaiting it yields each operation's output, nested to the left: `((a, b), c)`. See
/// `io_uring_enter(2)`, `IOSQE_IO_LINK`; `io_uring_prep_link_timeout(3)`.
///
/// # Cancel safety
/// Dropping it cancels what has not ended; after an operation that could not be stopped, the next one
/// may begin before it is stopped. The kernel looks up an operation's file when it begins, so until
/// then the descriptor must stay open: files and sockets of this crate see to that; close any other
/// descriptor by [`Local::close`], or call [`Local::release`] before closing it.
///
/// ```
/// use ringloop::embed::Link;
/// use ringloop::embed::op::{Fsync, Write};
/// use std::os::fd::AsRawFd;
///
/// # let runtime = ringloop::Runtime::new()?;
/// # let path = std::env::temp_dir().join(format!("ringloop-link-{}", std::process::id()));
/// # runtime.block_on(async {
/// let file = ringloop::fs::File::create(&path).await?;
/// let fd = file.as_raw_fd();
/// let write = Write { fd, buf: b"safe".to_vec().into(), offset: Some(0) };
/// let ((written, _), synced) = Link::new(write).then(Fsync { fd, data_only: true }).await;
/// assert_eq!(written?, 4);
/// synced?;
/// # std::fs::remove_file(&path)
/// # })??;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a link does nothing until it is awaited"]
pub struct Link<C> {
    chain: C,
}

impl<K: Kind> Link<First<K>> {
    /// Starts a link with `kind`.
    pub fn new(kind: K) -> Self {
        Self { chain: First(kind) }
    }
}

impl Link<First<Read>> {
    /// Writes what was read to `to`, out of the same buffer, without returning to the loop in
    /// between.
    ///
    /// The outputs are the bytes read, the bytes written, and the buffer. The write begins only if the
    /// read fills the whole buffer; after a shorter read, at the end of a file, it ends with `ECANCELED`,
    /// and the caller writes the bytes.
    pub fn then_write(self, to: RawFd, offset: Option<u64>) -> Link<ReadThenWrite> {
        let First(read) = self.chain;
        Link { chain: ReadThenWrite { read, to, offset } }
    }
}

impl<C: Chain> Link<C> {
    /// Adds `kind`, which begins once the operation before it has succeeded.
    pub fn then<K: Kind>(self, kind: K) -> Link<Then<C, K>> {
        Link { chain: Then(self.chain, kind) }
    }

    /// Limits the operation added last: if it has not ended `limit` after it began, it is cancelled
    /// and ends with `ETIMEDOUT`.
    pub fn timeout(self, limit: Duration) -> Link<Limited<C>> {
        Link { chain: Limited(self.chain, limit) }
    }
}

impl<C: Chain> IntoFuture for Link<C> {
    type Output = C::Outputs;
    type IntoFuture = Linked<C>;

    fn into_future(self) -> Linked<C> {
        let mut steps = Vec::new();
        let rest = self.chain.into_steps(&mut steps);
        Linked { rest: Some(rest), state: State::Unsubmitted(steps) }
    }
}

/// A link as a future.
#[must_use = "a link does nothing until it is awaited"]
pub struct Linked<C: Chain> {
    rest: Option<C::Rest>,
    state: State,
}

// Nothing in it is pinned: operations live in the driver.
impl<C: Chain> Unpin for Linked<C> {}

impl<C: Chain> fmt::Debug for Linked<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linked").finish_non_exhaustive()
    }
}

enum State {
    Unsubmitted(Vec<Step>),
    /// All with the kernel.
    Ring(Local, Vec<Flight>),
    /// One operation at a time.
    Sequence(Local, Sequence),
    Over,
}

/// An operation in flight, with the time-out that bounds it.
struct Flight {
    key: Key,
    outcome: Option<Outcome>,
    timer: Option<Key>,
    timed_out: bool,
}

impl Flight {
    /// The final result. `ECANCELED` because of the time-out becomes `ETIMEDOUT`.
    fn finish(&mut self) -> Outcome {
        let mut outcome =
            self.outcome.take().unwrap_or(Outcome { result: Err(cancelled()), request: None });
        if self.timed_out && is_cancelled(&outcome) {
            outcome.result = Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        outcome
    }

    /// Takes the operation's completion; returns true if it has ended.
    fn poll_operation(&mut self, local: &Local, waker: &Waker) -> bool {
        if self.outcome.is_none()
            && let Poll::Ready(outcome) = poll_outcome(local, self.key, waker)
        {
            self.outcome = Some(outcome);
        }
        self.outcome.is_some()
    }

    /// Takes the time-out's completion; returns true if it has ended.
    fn poll_timer(&mut self, local: &Local, waker: &Waker) -> bool {
        let Some(timer) = self.timer else {
            return true;
        };
        match poll_outcome(local, timer, waker) {
            Poll::Ready(outcome) => {
                self.timer = None;
                self.timed_out = matches!(outcome.result, Ok(0));
                true
            }
            Poll::Pending => false,
        }
    }

    fn forget(&mut self, local: &Local) {
        match self.outcome.take() {
            Some(outcome) => discard(local, outcome),
            None => local.forget(self.key),
        }
        if let Some(timer) = self.timer {
            local.forget(timer);
        }
    }
}

/// A cancelled wait on a kernel thread ends with `EINTR`.
fn is_cancelled(outcome: &Outcome) -> bool {
    let errno = outcome.result.as_ref().map_err(io::Error::raw_os_error);
    matches!(errno, Err(Some(libc::ECANCELED | libc::EINTR)))
}

/// A link as the readiness driver runs it.
struct Sequence {
    waiting: VecDeque<Step>,
    current: Option<Flight>,
    done: Vec<Outcome>,
}

impl Sequence {
    fn new(steps: Vec<Step>) -> Self {
        Self { waiting: steps.into(), current: None, done: Vec::new() }
    }

    fn poll(&mut self, local: &Local, waker: &Waker) -> Poll<()> {
        loop {
            let Some(flight) = &mut self.current else {
                match self.waiting.pop_front() {
                    Some(step) => self.current = Some(begin(local, step, waker)),
                    None => return Poll::Ready(()),
                }
                continue;
            };
            if !flight.poll_operation(local, waker) {
                if flight.timer.is_some() && flight.poll_timer(local, waker) {
                    local.engine().driver_mut().cancel(flight.key);
                    continue;
                }
                return Poll::Pending;
            }
            if let Some(timer) = flight.timer.take() {
                local.forget(timer);
            }
            let mut outcome = flight.finish();
            self.current = None;
            let is_broken = breaks(&mut outcome);
            self.done.push(outcome);
            if is_broken {
                self.give_up();
            }
        }
    }

    /// Discards the results. As on the ring, operations that have not begun count as submitted, and
    /// are cancelled.
    fn forget(&mut self, local: &Local) {
        if let Some(mut flight) = self.current.take() {
            flight.forget(local);
        }
        self.give_up();
        self.done.drain(..).for_each(|outcome| discard(local, outcome));
    }

    /// Ends the operations that have not begun.
    fn give_up(&mut self) {
        let given_up = self.waiting.drain(..).map(|mut step| {
            step.request.finish(-libc::ECANCELED);
            Outcome { result: Err(cancelled()), request: Some(step.request) }
        });
        self.done.extend(given_up);
    }
}

/// Discards an outcome; closes its descriptor, of which it has only the number.
fn discard(local: &Local, outcome: Outcome) {
    let result = raw_of(outcome.result);
    match outcome.request {
        Some(Request::Close(Close { fd })) if result == -libc::ECANCELED && fd >= 0 => {
            // SAFETY: invariant 2: the request that owned it is gone, cancelled before it ran.
            local.close(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Some(mut request) => request.discard(result),
        None => {}
    }
}

fn breaks(outcome: &mut Outcome) -> bool {
    match (&outcome.result, &mut outcome.request) {
        (Ok(count), Some(request)) => request.breaks_link(*count as i32),
        _ => true,
    }
}

fn begin(local: &Local, step: Step, waker: &Waker) -> Flight {
    let mut engine = local.engine();
    let driver = engine.driver_mut();
    let sink = || Sink::Waker(waker.clone());
    let key = driver.submit(step.request, sink());
    let timer =
        step.limit.map(|limit| driver.submit(Request::Timeout(Timeout::after(limit)), sink()));
    Flight { key, outcome: None, timer, timed_out: false }
}

/// Submits a link to the ring; runs it in sequence if there is none that can.
fn submit(local: &Local, steps: Vec<Step>, waker: &Waker) -> State {
    let mut engine = local.engine();
    let limited_count = steps.iter().filter(|step| step.limit.is_some()).count();
    let entry_count = steps.len() + limited_count;
    let requests = steps.iter().map(|step| &step.request);
    let Some(ring) = engine.driver_mut().linker(requests, entry_count) else {
        return State::Sequence(local.clone(), Sequence::new(steps));
    };
    let mut requests = Vec::with_capacity(entry_count);
    let mut is_limited = Vec::with_capacity(steps.len());
    for step in steps {
        is_limited.push(step.limit.is_some());
        requests.push(step.request);
        // Behind the operation that it limits.
        requests.extend(step.limit.map(|limit| Request::Timeout(Timeout::of_link(limit))));
    }
    let mut keys = ring.submit_linked(requests, waker).into_iter();
    let flights = is_limited.into_iter().filter_map(|is_limited| {
        let (key, outcome) = (keys.next()?, None);
        let timer = if is_limited { keys.next() } else { None };
        Some(Flight { key, outcome, timer, timed_out: false })
    });
    State::Ring(local.clone(), flights.collect())
}

impl<C: Chain> Future for Linked<C> {
    type Output = C::Outputs;

    /// # Panics
    /// If it is polled after it has completed, like an `async` block.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Outputs> {
        if let State::Unsubmitted(steps) = &mut self.state {
            let steps = std::mem::take(steps);
            self.state = submit(&Local::current(), steps, cx.waker());
        }
        let outcomes: Vec<_> = match &mut self.state {
            State::Ring(local, flights) => {
                let mut over = true;
                for flight in flights.iter_mut() {
                    over &= flight.poll_operation(local, cx.waker());
                    over &= flight.poll_timer(local, cx.waker());
                }
                if !over {
                    return waiting("linked operations");
                }
                flights.iter_mut().map(Flight::finish).collect()
            }
            State::Sequence(local, sequence) => {
                if sequence.poll(local, cx.waker()).is_pending() {
                    return waiting("linked operations");
                }
                std::mem::take(&mut sequence.done)
            }
            State::Unsubmitted(_) | State::Over => Vec::new(),
        };
        self.state = State::Over;
        let rest = self.rest.take().expect("a link was polled after it was over");
        Poll::Ready(C::outputs(rest, &mut outcomes.into_iter()))
    }
}

impl<C: Chain> Drop for Linked<C> {
    fn drop(&mut self) {
        match &mut self.state {
            // In order: those behind the first end with it.
            State::Ring(local, flights) => {
                for flight in flights {
                    flight.forget(local);
                }
            }
            State::Sequence(local, sequence) => sequence.forget(local),
            State::Unsubmitted(_) | State::Over => {}
        }
    }
}
