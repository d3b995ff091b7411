//! Linked operations: each begins when the one before it has succeeded.
//!
//! Owns: [`Link`] (the builder), [`Linked`] (its future). Called by: Rust programs, `fs`.
//! Never does: decide what success is; that is the kernel's rule, told by `op`.
//!
//! On the ring the kernel runs the whole link and comes back once; on the readiness driver the future runs
//! the operations in sequence, with the same results:
//! * an operation that fails ends the link: those behind it are not begun, and end with `ECANCELED`;
//! * so does a transfer that moves less than its buffer holds (a read at the end of a file, a short write or
//!   splice); a receive from a socket may be short;
//! * a send whose wait for room the kernel gives up (`EAGAIN`, `EINTR`; rare, on Unix sockets) ends the link on the ring,
//!   where what is behind it is over by then; alone it would be made again;
//! * an operation bounded by [`Link::timeout`] that is not over in time is cancelled, and ends with
//!   `ETIMEDOUT`; where it was over after all, with its own result.
//!
//! # Invariants
//! 1. What the write of a [`ReadThenWrite`] sends has been filled by the read before it.
//! 2. A descriptor that a link was to close is closed once, and by the driver, which may still name its number: by a
//!    pool thread, on the queue, or in what epoll was told.

use crate::buf::{RecvBuf, Shared};
use crate::driver::{Key, Sink};
use crate::executor::runtime::local::{Local, poll_outcome};
use crate::op::{Close, Kind, Operation, Outcome, Read, Request, Timeout, Write};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// One operation of a link.
#[derive(Debug)]
pub struct Step {
    request: Request,
    limit: Option<Duration>,
}

/// Operations in order, and what their results become.
pub trait Chain {
    /// What awaiting the link yields.
    type Outputs;

    /// What the results need beside the requests.
    type Rest;

    /// The requests, in order.
    fn into_steps(self, steps: &mut Vec<Step>) -> Self::Rest;

    /// The results, in order.
    fn outputs(rest: Self::Rest, outcomes: &mut dyn Iterator<Item = Outcome>) -> Self::Outputs;
}

/// The first operation of a link.
#[derive(Debug)]
pub struct First<K>(K);

/// A link with one operation more; its outputs are nested to the left: `((a, b), c)`.
#[derive(Debug)]
pub struct Then<C, K>(C, K);

/// A link whose last operation is bounded in time.
#[derive(Debug)]
pub struct Limited<C>(C, Duration);

/// A read whose bytes are written as soon as they are there.
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
    outcomes.next().unwrap_or_else(|| Outcome {
        result: Err(cancelled()),
        request: None,
    })
}

fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

impl<K: Kind> Chain for First<K> {
    type Outputs = K::Output;
    type Rest = ();

    fn into_steps(self, steps: &mut Vec<Step>) {
        let request = self.0.into_request();
        steps.push(Step {
            request,
            limit: None,
        });
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
        // SAFETY: invariant 1: the write's bytes are looked at by itself alone, which begins after a full read.
        let (into, from, shared) = unsafe { Shared::share(self.read.buf) };
        let read = Read {
            buf: into,
            ..self.read
        };
        let write = Write {
            fd: self.to,
            buf: from,
            offset: self.offset,
        };
        First(read).into_steps(steps);
        First(write).into_steps(steps);
        Hold(shared)
    }

    fn outputs(Hold(shared): Hold, outcomes: &mut dyn Iterator<Item = Outcome>) -> Self::Outputs {
        let (read, into) = Read::output(next(outcomes));
        let (written, from) = Write::output(next(outcomes));
        let filled = into.filled().len();
        drop((into, from));
        // SAFETY: the first face counted so many bytes at the start of the same memory.
        let buf = unsafe { shared.into_buf(filled) };
        (
            read,
            written,
            buf.unwrap_or_else(|| RecvBuf::with_capacity(0)),
        )
    }
}

/// Operations that run one after the other, each if the one before it has succeeded.
///
/// Shape: awaiting it yields each operation's output, nested to the left: `((a, b), c)`.
/// Cancel safety: dropping it cancels what has not ended; an operation that could not be stopped may be
/// followed by the next one before that is stopped. The kernel finds the file of an operation when that begins, so until then
/// the descriptor must stay open: files and sockets of this crate see to that, and what else has been named is given to
/// [`Local::close`], or to [`Local::release`] before it is closed.
/// Source: `io_uring_enter(2)`, `IOSQE_IO_LINK`; `io_uring_prep_link_timeout(3)`.
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
    /// Begin with `kind`.
    pub fn new(kind: K) -> Self {
        Self { chain: First(kind) }
    }
}

impl Link<First<Read>> {
    /// Write what was read to `to`, out of the same buffer, without coming back in between.
    ///
    /// Shape: the outputs are the bytes read, the bytes written, and the buffer. The write takes place where
    /// the read fills the buffer's whole room; the rest of a file, which is less, ends the link with
    /// `ECANCELED` and is there to be written.
    pub fn then_write(self, to: RawFd, offset: Option<u64>) -> Link<ReadThenWrite> {
        let First(read) = self.chain;
        Link {
            chain: ReadThenWrite { read, to, offset },
        }
    }
}

impl<C: Chain> Link<C> {
    /// Go on with `kind` once the operation before it has succeeded.
    pub fn then<K: Kind>(self, kind: K) -> Link<Then<C, K>> {
        Link {
            chain: Then(self.chain, kind),
        }
    }

    /// Cancel the operation added last where it is not over `limit` after it began; it ends with
    /// `ETIMEDOUT` then.
    pub fn timeout(self, limit: Duration) -> Link<Limited<C>> {
        Link {
            chain: Limited(self.chain, limit),
        }
    }
}

impl<C: Chain> IntoFuture for Link<C> {
    type Output = C::Outputs;
    type IntoFuture = Linked<C>;

    fn into_future(self) -> Linked<C> {
        let mut steps = Vec::new();
        let rest = self.chain.into_steps(&mut steps);
        Linked {
            rest: Some(rest),
            state: State::Unsubmitted(steps),
        }
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
    /// With the kernel, all of it.
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
    /// The result, once it is final. `ECANCELED` because of the time-out reads `ETIMEDOUT`.
    fn finish(&mut self) -> Outcome {
        let mut outcome = self.outcome.take().unwrap_or(Outcome {
            result: Err(cancelled()),
            request: None,
        });
        if self.timed_out && is_cancelled(&outcome) {
            outcome.result = Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        outcome
    }

    /// Take what has come for the operation; whether it is over.
    fn poll_operation(&mut self, local: &Local, waker: &Waker) -> bool {
        if self.outcome.is_none()
            && let Poll::Ready(outcome) = poll_outcome(local, self.key, waker)
        {
            self.outcome = Some(outcome);
        }
        self.outcome.is_some()
    }

    /// Take what has come for the time-out; whether it is over.
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

/// A cancelled wait on a thread of the kernel's ends with `EINTR`.
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
        Self {
            waiting: steps.into(),
            current: None,
            done: Vec::new(),
        }
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

    /// Nobody wants the results: as on the ring, what has not begun was begun with the rest, and is cancelled.
    fn forget(&mut self, local: &Local) {
        if let Some(mut flight) = self.current.take() {
            flight.forget(local);
        }
        self.give_up();
        self.done
            .drain(..)
            .for_each(|outcome| discard(local, outcome));
    }

    /// What has not begun ends here.
    fn give_up(&mut self) {
        let given_up = self.waiting.drain(..).map(|mut step| {
            step.request.finish(-libc::ECANCELED);
            Outcome {
                result: Err(cancelled()),
                request: Some(step.request),
            }
        });
        self.done.extend(given_up);
    }
}

/// Give back what nobody takes any more: a descriptor, which an outcome names by its number alone.
fn discard(local: &Local, outcome: Outcome) {
    let result = match outcome.result {
        Ok(count) => count as i32,
        Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
    };
    match outcome.request {
        Some(Request::Close(Close { fd })) if result == -libc::ECANCELED && fd >= 0 => {
            // SAFETY: invariant 2: the request, which owned it and is gone now, was given up before it ran.
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
    let timer = step
        .limit
        .map(|limit| driver.submit(Request::Timeout(Timeout::after(limit)), sink()));
    Flight {
        key,
        outcome: None,
        timer,
        timed_out: false,
    }
}

/// The requests of a link on the ring, each followed by its time-out.
fn requests(steps: Vec<Step>) -> (Vec<Request>, Vec<Option<Duration>>) {
    let mut requests = Vec::new();
    let mut limits = Vec::new();
    for step in steps {
        requests.push(step.request);
        if let Some(limit) = step.limit {
            requests.push(Request::Timeout(Timeout::of_link(limit)));
        }
        limits.push(step.limit);
    }
    (requests, limits)
}

/// The other way: what the driver did not take.
fn steps(requests: Vec<Request>, limits: Vec<Option<Duration>>) -> Vec<Step> {
    let mut requests = requests.into_iter();
    let mut steps = Vec::new();
    for limit in limits {
        if let Some(request) = requests.next() {
            steps.push(Step { request, limit });
        }
        if limit.is_some() {
            requests.next();
        }
    }
    steps
}

fn submit(local: &Local, steps_given: Vec<Step>, waker: &Waker) -> State {
    let (requests, limits) = requests(steps_given);
    let submitted = local.engine().driver_mut().submit_linked(requests, waker);
    match submitted {
        Ok(keys) => {
            let mut keys = keys.into_iter();
            let flights = limits.into_iter().filter_map(|limit| {
                Some(Flight {
                    key: keys.next()?,
                    outcome: None,
                    timer: limit.and_then(|_| keys.next()),
                    timed_out: false,
                })
            });
            State::Ring(local.clone(), flights.collect())
        }
        Err(requests) => {
            let sequence = Sequence::new(steps(requests, limits));
            State::Sequence(local.clone(), sequence)
        }
    }
}

impl<C: Chain> Future for Linked<C> {
    type Output = C::Outputs;

    /// Panics: when it is polled after it gave the results, as an `async` block does.
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
                    return Poll::Pending;
                }
                flights.iter_mut().map(Flight::finish).collect()
            }
            State::Sequence(local, sequence) => {
                if sequence.poll(local, cx.waker()).is_pending() {
                    return Poll::Pending;
                }
                std::mem::take(&mut sequence.done)
            }
            State::Unsubmitted(_) | State::Over => Vec::new(),
        };
        self.state = State::Over;
        let rest = self
            .rest
            .take()
            .expect("a link was polled after it was over");
        Poll::Ready(C::outputs(rest, &mut outcomes.into_iter()))
    }
}

impl<C: Chain> Drop for Linked<C> {
    fn drop(&mut self) {
        match &mut self.state {
            // The first one first: those behind it end with it.
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
