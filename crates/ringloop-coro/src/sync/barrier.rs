//! Waiting for each other: a number of coroutines at one point, or until the last handle is gone.
//!
//! Owns: [`Barrier`], [`WaitGroup`]. Called by: coroutines, threads and async code.

use super::channel::{Receiver, Sender, bounded};
use super::waiters::{Line, LineWait, Waiters};
use crate::wait::block_on_anywhere;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Mutex;
use std::task::Waker;

/// Lets a number of coroutines wait for each other, repeatedly.
///
/// ```
/// use ringloop_coro::sync::Barrier;
/// use std::sync::Arc;
///
/// ringloop_coro::start(1, || {
///     let barrier = Arc::new(Barrier::new(2));
///     let theirs = Arc::clone(&barrier);
///     let other = ringloop_coro::spawn(move || theirs.wait().is_leader());
///     let leads = barrier.wait().is_leader();
///     assert!(leads != other.join().unwrap());
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub struct Barrier {
    count: usize,
    round: Mutex<Round>,
}

#[derive(Default)]
struct Round {
    arrived: usize,
    waiters: Waiters,
}

struct Arrivals;

impl Line<Round> for Arrivals {
    fn waiters(round: &mut Round) -> &mut Waiters {
        &mut round.waiters
    }

    fn abandon(round: &mut Round, was_in_line: bool) -> Option<Waker> {
        round.arrived -= usize::from(was_in_line);
        None
    }
}

/// Returned by a wait at a [`Barrier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Whether it was the last to arrive.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// A barrier for `count` waits; 0 counts as 1.
    pub fn new(count: usize) -> Self {
        Self { count: count.max(1), round: Mutex::default() }
    }

    /// Waits until `count` have arrived.
    ///
    /// # Cancel safety
    /// A wait that is cancelled has not arrived.
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        block_on_anywhere(self.wait_async(), "Barrier::wait_async()")
    }

    /// As [`Barrier::wait`]: for `select!` and async code.
    ///
    /// # Cancel safety
    /// A wait that is dropped has not arrived.
    pub fn wait_async(&self) -> impl Future<Output = BarrierWaitResult> {
        let mut wait = LineWait::<_, Arrivals>::new(&self.round);
        poll_fn(move |cx| {
            let arrived = wait.poll(cx, |round, ticket| match ticket {
                Some(ticket) if round.waiters.contains(ticket) => None,
                Some(_) => Some(None),
                None => {
                    round.arrived += 1;
                    (round.arrived == self.count).then(|| {
                        round.arrived = 0;
                        Some(round.waiters.take_all())
                    })
                }
            });
            arrived.map(|others| {
                let is_leader = others.is_some();
                others.into_iter().flatten().for_each(Waker::wake);
                BarrierWaitResult(is_leader)
            })
        })
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("count", &self.count).finish_non_exhaustive()
    }
}

/// Waits until every clone of it was dropped.
///
/// ```
/// use ringloop_coro::sync::WaitGroup;
///
/// ringloop_coro::start(1, || {
///     let group = WaitGroup::new();
///     for _ in 0..3 {
///         let member = group.clone();
///         drop(ringloop_coro::spawn(move || drop(member)));
///     }
///     group.wait();
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WaitGroup {
    // A channel without values: it is closed when the last sender is dropped.
    member: Sender<Infallible>,
    closed: Receiver<Infallible>,
}

impl WaitGroup {
    /// A group with one handle.
    pub fn new() -> Self {
        let (member, closed) = bounded(1);
        Self { member, closed }
    }

    /// Drops this handle and waits until the last one is dropped.
    #[track_caller]
    pub fn wait(self) {
        block_on_anywhere(self.wait_async(), "WaitGroup::wait_async()");
    }

    /// As [`WaitGroup::wait`]: for `select!` and async code. The handle is dropped by the call.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn wait_async(self) -> impl Future<Output = ()> {
        let Self { member, closed } = self;
        drop(member);
        async move {
            let _closed = closed.recv_async().await;
        }
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}
