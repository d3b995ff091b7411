//! Waiting for each other: a number of them at one point, or until the last handle is gone.

use super::waiters::{Ticket, Waiters};
use crate::atomics::locked;
use crate::wait::block_on_anywhere;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Lets so many wait for each other, again and again.
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
    state: Mutex<Round>,
}

#[derive(Default)]
struct Round {
    arrived: usize,
    waiters: Waiters,
}

/// What came of a wait at a [`Barrier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Whether it was the last one to arrive; one of them is.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// For so many; 0 counts as 1.
    pub fn new(count: usize) -> Self {
        Self {
            count: count.max(1),
            state: Mutex::default(),
        }
    }

    /// Wait until as many as it is for are here.
    ///
    /// Cancellation: who is cancelled here has not arrived.
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        block_on_anywhere(self.wait_async(), "Barrier::wait_async()")
    }

    /// As [`Barrier::wait`], as a future. Cancel safety: safe.
    pub fn wait_async(&self) -> impl Future<Output = BarrierWaitResult> {
        ArriveFuture {
            barrier: self,
            ticket: None,
        }
    }
}

struct ArriveFuture<'a> {
    barrier: &'a Barrier,
    ticket: Option<Ticket>,
}

impl Future for ArriveFuture<'_> {
    type Output = BarrierWaitResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let barrier = self.barrier;
        let mut round = locked(&barrier.state);
        match self.ticket {
            Some(ticket) if round.waiters.stands(ticket) => {}
            // The last one has come, and all were woken.
            Some(_) => {
                self.ticket = None;
                return Poll::Ready(BarrierWaitResult(false));
            }
            None => {
                round.arrived += 1;
                if round.arrived == barrier.count {
                    let others = std::mem::take(&mut round.arrived);
                    let all = round.waiters.all();
                    drop(round);
                    debug_assert_eq!(others, barrier.count);
                    all.for_each(Waker::wake);
                    return Poll::Ready(BarrierWaitResult(true));
                }
            }
        }
        round.waiters.stand(&mut self.ticket, cx.waker());
        Poll::Pending
    }
}

impl Drop for ArriveFuture<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let mut round = locked(&self.barrier.state);
            if round.waiters.leave(ticket) {
                round.arrived -= 1;
            }
        }
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier")
            .field("count", &self.count)
            .finish_non_exhaustive()
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
pub struct WaitGroup {
    state: Arc<Mutex<Members>>,
}

struct Members {
    count: usize,
    waiters: Waiters,
}

impl WaitGroup {
    /// With one handle.
    pub fn new() -> Self {
        let state = Members {
            count: 1,
            waiters: Waiters::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Drop this handle and wait until the last one is.
    #[track_caller]
    pub fn wait(self) {
        block_on_anywhere(self.wait_async(), "WaitGroup::wait_async()");
    }

    /// As [`WaitGroup::wait`], as a future. Cancel safety: the handle is dropped in any case.
    pub fn wait_async(self) -> impl Future<Output = ()> {
        let state = Arc::clone(&self.state);
        drop(self);
        let mut ticket = None;
        // A ticket that is left behind wakes somebody who does not wait any more, and no more.
        poll_fn(move |cx| {
            let mut members = locked(&state);
            if members.count == 0 {
                return Poll::Ready(());
            }
            members.waiters.stand(&mut ticket, cx.waker());
            Poll::Pending
        })
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for WaitGroup {
    fn clone(&self) -> Self {
        locked(&self.state).count += 1;
        Self {
            state: Arc::clone(&self.state),
        }
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        let mut members = locked(&self.state);
        members.count -= 1;
        if members.count == 0 {
            let all = members.waiters.all();
            drop(members);
            all.for_each(Waker::wake);
        }
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup")
            .field("count", &locked(&self.state).count)
            .finish()
    }
}
