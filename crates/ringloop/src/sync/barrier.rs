//! A point where a number of tasks wait for each other.
//!
//! Owns: the line of the tasks that have arrived.

use super::place::Place;
use super::semaphore::Woken;
use super::waiters::{Ticket, Waiters};
use crate::executor::waiting;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Lets a number of tasks wait for each other, repeatedly; see [`crate::sync::Barrier`] and
/// [`crate::sync::local::Barrier`].
///
/// ```
/// # ringloop::Runtime::new()?.block_on(async {
/// let barrier = ringloop::sync::local::Barrier::new(2);
/// let theirs = barrier.clone();
/// let other = ringloop::spawn(async move { theirs.wait().await.is_leader() });
/// let leads = barrier.wait().await.is_leader();
/// assert!(leads != other.await.unwrap());
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub struct Barrier<P: Place> {
    count: usize,
    round: P::Shared<P::Cell<Round>>,
}

#[derive(Debug, Default)]
struct Round {
    /// In the line.
    arrived: usize,
    waiters: Waiters,
}

/// Returned by a wait at a [`crate::sync::Barrier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Whether it was the last to arrive.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl<P: Place> Barrier<P> {
    /// A barrier for `count` waits; 0 counts as 1.
    pub fn new(count: usize) -> Self {
        Self { count: count.max(1), round: P::share(P::cell(Round::default())) }
    }

    /// Waits until `count` have arrived; the first poll arrives.
    ///
    /// # Cancel safety
    /// A wait that is dropped has not arrived.
    pub fn wait(&self) -> BarrierWait<P> {
        BarrierWait { barrier: self.clone(), ticket: None }
    }
}

impl<P: Place> Clone for Barrier<P> {
    /// A handle of the same barrier.
    fn clone(&self) -> Self {
        Self { count: self.count, round: self.round.clone() }
    }
}

/// Waits at a [`crate::sync::Barrier`].
#[must_use = "await it to wait for the others"]
pub struct BarrierWait<P: Place> {
    barrier: Barrier<P>,
    ticket: Option<Ticket>,
}

impl<P: Place> Unpin for BarrierWait<P> {}

impl<P: Place> Future for BarrierWait<P> {
    type Output = BarrierWaitResult;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BarrierWaitResult> {
        let Self { barrier, ticket } = self.get_mut();
        if let Some(place) = *ticket {
            let is_over =
                P::with(&barrier.round, |round| round.waiters.take_grant(place, cx.waker()));
            if !is_over {
                return waiting("a barrier");
            }
            *ticket = None;
            return Poll::Ready(BarrierWaitResult(false));
        }
        // Who is woken by the last to arrive.
        let woken = P::with(&barrier.round, |round| {
            if round.arrived + 1 < barrier.count {
                round.arrived += 1;
                *ticket = Some(round.waiters.push(cx.waker(), 1));
                return None;
            }
            round.arrived = 0;
            Some(Woken::all(&mut round.waiters, 1))
        });
        let Some(woken) = woken else {
            return waiting("a barrier");
        };
        woken.wake();
        Poll::Ready(BarrierWaitResult(true))
    }
}

impl<P: Place> Drop for BarrierWait<P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            P::with(&self.barrier.round, |round| {
                round.arrived -= usize::from(round.waiters.leave(ticket) == 0);
            });
        }
    }
}

impl<P: Place> fmt::Debug for Barrier<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("count", &self.count).finish_non_exhaustive()
    }
}

impl<P: Place> fmt::Debug for BarrierWait<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWait").finish_non_exhaustive()
    }
}
