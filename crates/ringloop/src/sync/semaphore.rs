//! Permits: acquired first in, first out, released when dropped.
//!
//! Owns: [`Semaphore`] and `Permits`, its state without the cell, which channels use too. A small request
//! does not overtake an earlier large one.

use super::place::{Place, has_share};
use super::waiters::{Ticket, Waiters};
use crate::executor::{Local, waiting};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The largest number of permits.
pub(super) const PERMITS_MAX: usize = usize::MAX >> 3;

/// The free permits and the waiters.
#[derive(Debug)]
pub(super) struct Permits {
    free: usize,
    /// More are not kept.
    free_max: usize,
    waiters: Waiters,
}

impl Permits {
    pub fn new(free: usize, free_max: usize) -> Self {
        Self { free: free.min(free_max), free_max, waiters: Waiters::default() }
    }

    /// Number of free permits.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Whether `count` permits are free and there are no waiters.
    fn has(&self, count: usize) -> bool {
        self.waiters.is_empty() && self.free >= count
    }

    /// Takes `count` permits if [`Permits::has`] them.
    pub fn try_take(&mut self, count: usize) -> bool {
        let taken = self.has(count);
        if taken {
            self.free -= count;
        }
        taken
    }

    /// Takes `count` permits, or enters the line and sets `ticket`.
    pub fn poll_take(&mut self, count: usize, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        match *ticket {
            None if self.try_take(count) => true,
            None => {
                *ticket = Some(self.waiters.push(waker, count));
                false
            }
            Some(place) if self.waiters.poll(place, waker) => {
                self.waiters.leave(place);
                *ticket = None;
                true
            }
            Some(_) => false,
        }
    }

    /// Whether permits are free but the running task has used its budget, so that the caller wakes it
    /// for its next turn. A task that was in the line has waited.
    #[inline]
    pub fn is_past_share<P: Place>(&self, count: usize, ticket: Option<Ticket>) -> bool {
        P::IS_SHARED && ticket.is_none() && self.has(count) && !has_share::<P>()
    }

    /// Leaves the line. A grant goes to the next waiters, which the caller wakes.
    pub fn leave(&mut self, ticket: Ticket) -> Woken {
        let back = self.waiters.leave(ticket);
        self.give(back)
    }

    /// Releases `count` permits; the caller wakes the waiters that get them.
    pub fn give(&mut self, count: usize) -> Woken {
        self.free = self.free.saturating_add(count);
        let mut woken = Woken::default();
        while let Some(want) = self.waiters.first_wants()
            && want <= self.free
        {
            self.free -= want;
            woken.extend(self.waiters.grant(want));
        }
        self.free = self.free.min(self.free_max);
        woken
    }

    /// Ends every wait, with nothing granted.
    pub fn grant_all(&mut self) -> Woken {
        Woken::all(&mut self.waiters, 0)
    }
}

/// Waiters to wake once the state's cell is free. One needs no allocation.
#[derive(Debug, Default)]
pub(super) struct Woken {
    first: Option<Waker>,
    others: Vec<Waker>,
}

impl Woken {
    /// Every waiter of a line, with `count` granted to each.
    pub fn all(waiters: &mut Waiters, count: usize) -> Self {
        let mut woken = Self::default();
        woken.add_all(waiters, count);
        woken
    }

    pub fn add_all(&mut self, waiters: &mut Waiters, count: usize) {
        while !waiters.is_empty() {
            self.extend(waiters.grant(count));
        }
    }

    fn extend(&mut self, waker: Option<Waker>) {
        match (&self.first, waker) {
            (_, None) => {}
            (None, waker) => self.first = waker,
            (Some(_), Some(waker)) => self.others.push(waker),
        }
    }

    pub fn wake(self) {
        for waker in self.first.into_iter().chain(self.others) {
            waker.wake();
        }
    }
}

/// A number of permits; see [`crate::sync::Semaphore`] and [`crate::sync::local::Semaphore`].
///
/// ```
/// # ringloop::Runtime::new()?.block_on(async {
/// let at_once = ringloop::sync::local::Semaphore::new(2);
/// let (first, second) = (at_once.acquire(1).await, at_once.acquire(1).await);
/// assert!(at_once.try_acquire(1).is_none());
/// drop(first);
/// assert_eq!(at_once.available(), 1);
/// # drop(second);
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub struct Semaphore<P: Place> {
    permits: P::Shared<P::Cell<Permits>>,
}

impl<P: Place> Clone for Semaphore<P> {
    /// A handle of the same permits.
    fn clone(&self) -> Self {
        Self { permits: self.permits.clone() }
    }
}

impl<P: Place> Semaphore<P> {
    /// A semaphore with `permits` permits.
    pub fn new(permits: usize) -> Self {
        Self::with_max(permits, PERMITS_MAX)
    }

    /// A semaphore that keeps at most `free_max` free permits.
    pub(super) fn with_max(permits: usize, free_max: usize) -> Self {
        Self { permits: P::share(P::cell(Permits::new(permits, free_max))) }
    }

    /// Waits for `count` permits; waiters are served first in, first out.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the line and takes nothing.
    pub fn acquire(&self, count: usize) -> Acquire<P> {
        Acquire { semaphore: self.clone(), count, ticket: None }
    }

    /// Acquires `count` permits if they are free and there are no waiters.
    pub fn try_acquire(&self, count: usize) -> Option<Permit<P>> {
        P::with(&self.permits, |permits| permits.try_take(count))
            .then(|| Permit { semaphore: self.clone(), count })
    }

    /// Number of free permits.
    pub fn available(&self) -> usize {
        P::with(&self.permits, |permits| permits.free)
    }

    /// Adds permits, up to an eighth of `usize::MAX`.
    pub fn add(&self, count: usize) {
        P::with(&self.permits, |permits| permits.give(count)).wake();
    }

    /// Ends every wait, with nothing granted.
    pub(super) fn grant_all(&self) {
        P::with(&self.permits, Permits::grant_all).wake();
    }
}

/// Waits for permits.
#[derive(Debug)]
#[must_use = "await it to acquire the permits"]
pub struct Acquire<P: Place> {
    semaphore: Semaphore<P>,
    count: usize,
    ticket: Option<Ticket>,
}

impl<P: Place> Future for Acquire<P> {
    type Output = Permit<P>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit<P>> {
        let this = self.get_mut();
        let (count, ticket) = (this.count, &mut this.ticket);
        let taken = P::with(&this.semaphore.permits, |permits| {
            if permits.is_past_share::<P>(count, *ticket) {
                return None;
            }
            Some(permits.poll_take(count, ticket, cx.waker()))
        });
        let Some(taken) = taken else {
            return Local::next_turn(cx);
        };
        if !taken {
            return waiting("permits");
        }
        Poll::Ready(Permit { semaphore: this.semaphore.clone(), count })
    }
}

impl<P: Place> Unpin for Acquire<P> {}

impl<P: Place> Drop for Acquire<P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            P::with(&self.semaphore.permits, |permits| permits.leave(ticket)).wake();
        }
    }
}

/// Acquired permits; dropping it releases them.
#[derive(Debug)]
#[must_use = "dropping a permit releases it"]
pub struct Permit<P: Place> {
    semaphore: Semaphore<P>,
    count: usize,
}

impl<P: Place> Permit<P> {
    /// Drops the permit without releasing it.
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl<P: Place> Drop for Permit<P> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.semaphore.add(self.count);
        }
    }
}

impl<P: Place> fmt::Debug for Semaphore<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish()
    }
}
