//! Permits: taken in the order of asking, given back when they are dropped.
//!
//! Owns: [`Semaphore`] and `Permits`, its state without the cell, which channels are built on too.
//! Never does: let a small wish pass a large one that came first.

use super::place::{Place, has_share, next_turn};
use super::waiters::{Ticket, Waiters};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// More permits than anything can hold.
pub(super) const PERMITS_MAX: usize = usize::MAX >> 3;

/// How many are free, and who waits for some.
#[derive(Debug, Default)]
pub(super) struct Permits {
    free: usize,
    waiters: Waiters,
}

impl Permits {
    pub fn new(free: usize) -> Self {
        Self {
            free: free.min(PERMITS_MAX),
            waiters: Waiters::default(),
        }
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Whether some can be taken now, past nobody.
    pub fn has(&self, count: usize) -> bool {
        self.waiters.is_empty() && self.free >= count
    }

    /// Take some now, past nobody.
    pub fn try_take(&mut self, count: usize) -> bool {
        let taken = self.has(count);
        if taken {
            self.free -= count;
        }
        taken
    }

    /// Take some, or wait in the line; `ticket` is the place in it.
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

    /// Whether what is there is past the running task's share and waits for its next turn, for which the caller wakes
    /// it. Who has stood in the line has waited.
    #[inline]
    pub fn is_past_share<P: Place>(&self, count: usize, ticket: Option<Ticket>) -> bool {
        P::IS_SHARED && ticket.is_none() && self.has(count) && !has_share::<P>()
    }

    /// Stop waiting. What was granted meanwhile goes on to the next, whom the caller wakes.
    pub fn leave(&mut self, ticket: Ticket) -> Woken {
        let back = self.waiters.leave(ticket);
        self.give(back)
    }

    /// Give some back; the caller wakes those whose turn it is.
    pub fn give(&mut self, count: usize) -> Woken {
        self.free = self.free.saturating_add(count).min(PERMITS_MAX);
        let mut woken = Woken::default();
        while let Some(want) = self.waiters.first_wants()
            && want <= self.free
        {
            self.free -= want;
            woken.extend(self.waiters.grant(want));
        }
        woken
    }

    /// Have at most `count` free.
    pub fn keep(&mut self, count: usize) {
        self.free = self.free.min(count);
    }

    /// End the wait of everybody, with nothing granted.
    pub fn grant_all(&mut self) -> Woken {
        let mut woken = Woken::default();
        while !self.waiters.is_empty() {
            woken.extend(self.waiters.grant(0));
        }
        woken
    }
}

/// Those whose turn it is, to be woken once the state's cell is free. Mostly one, without an allocation.
#[derive(Debug, Default)]
pub(super) struct Woken {
    first: Option<Waker>,
    others: Vec<Waker>,
}

impl Woken {
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
    /// The same permits.
    fn clone(&self) -> Self {
        Self {
            permits: self.permits.clone(),
        }
    }
}

impl<P: Place> Semaphore<P> {
    /// A semaphore with so many permits.
    pub fn new(permits: usize) -> Self {
        Self {
            permits: P::share(P::cell(Permits::new(permits))),
        }
    }

    /// Wait for `count` permits. Those who wait are served in the order of asking.
    /// Cancel safety: dropping the future gives up the place in the line, and takes nothing.
    pub fn acquire(&self, count: usize) -> Acquire<P> {
        Acquire {
            semaphore: self.clone(),
            count,
            ticket: None,
        }
    }

    /// Take `count` permits now, if they are free and nobody waits.
    pub fn try_acquire(&self, count: usize) -> Option<Permit<P>> {
        P::with(&self.permits, |permits| permits.try_take(count)).then(|| Permit {
            semaphore: self.clone(),
            count,
        })
    }

    /// How many permits are free.
    pub fn available(&self) -> usize {
        P::with(&self.permits, |permits| permits.free())
    }

    /// Add permits to those there are, to an eighth of `usize::MAX` at most.
    pub fn add(&self, count: usize) {
        P::with(&self.permits, |permits| permits.give(count)).wake();
    }
}

/// Waits for permits.
#[must_use = "permits are waited for when the future is awaited"]
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
            return next_turn(cx);
        };
        if !taken {
            return Poll::Pending;
        }
        Poll::Ready(Permit {
            semaphore: this.semaphore.clone(),
            count,
        })
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

/// Permits that were taken; dropping it gives them back.
#[must_use = "dropping a permit gives it back"]
pub struct Permit<P: Place> {
    semaphore: Semaphore<P>,
    count: usize,
}

impl<P: Place> Permit<P> {
    /// Keep the permits from ever being given back.
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl<P: Place> Drop for Permit<P> {
    fn drop(&mut self) {
        let count = self.count;
        P::with(&self.semaphore.permits, |permits| permits.give(count)).wake();
    }
}

impl<P: Place> fmt::Debug for Semaphore<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("available", &self.available())
            .finish()
    }
}

impl<P: Place> fmt::Debug for Acquire<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl<P: Place> fmt::Debug for Permit<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
