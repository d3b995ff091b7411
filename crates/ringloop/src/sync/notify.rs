//! Notifications without a value.
//!
//! Owns: the waiters, and at most one stored notification.

use super::place::{Place, next_turn};
use super::semaphore::{Permits, Woken};
use super::waiters::Ticket;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// See [`crate::sync::Notify`] and [`crate::sync::local::Notify`].
///
/// ```
/// # ringloop::Runtime::new()?.block_on(async {
/// let notify = ringloop::sync::local::Notify::new();
/// notify.notify_one(); // stored: there is no waiter
/// notify.notified().await;
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub struct Notify<P: Place> {
    state: P::Shared<P::Cell<Permits>>,
}

impl<P: Place> Default for Notify<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Place> Clone for Notify<P> {
    /// A handle of the same `Notify`.
    fn clone(&self) -> Self {
        Self { state: self.state.clone() }
    }
}

impl<P: Place> Notify<P> {
    /// Without a notification.
    pub fn new() -> Self {
        Self { state: P::share(P::cell(Permits::new(0))) }
    }

    /// Wakes the waiter that has waited longest; without one, the next wait is ready at once.
    pub fn notify_one(&self) {
        P::with(
            &self.state,
            |state| {
                if state.free() == 0 { state.give(1) } else { Woken::default() }
            },
        )
        .wake();
    }

    /// Wakes all current waiters; stores nothing.
    pub fn notify_all(&self) {
        P::with(&self.state, Permits::grant_all).wake();
    }

    /// Waits for a notification; the first poll enters the line.
    ///
    /// # Cancel safety
    /// Cancel safe: the notification of a dropped future goes to the next waiter.
    pub fn notified(&self) -> Notified<P> {
        Notified { notify: self.clone(), ticket: None }
    }
}

/// Waits for a notification.
#[must_use = "await it to wait for a notification"]
pub struct Notified<P: Place> {
    notify: Notify<P>,
    ticket: Option<Ticket>,
}

impl<P: Place> Unpin for Notified<P> {}

impl<P: Place> Future for Notified<P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let ticket = &mut this.ticket;
        let polled = P::with(&this.notify.state, |state| {
            if state.is_past_share::<P>(1, *ticket) {
                return None;
            }
            Some(state.poll_take(1, ticket, cx.waker()))
        });
        let Some(is_notified) = polled else {
            return next_turn(cx);
        };
        if is_notified { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<P: Place> Drop for Notified<P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            P::with(&self.notify.state, |state| {
                let woken = state.leave(ticket);
                // At most one is stored.
                state.keep(1);
                woken
            })
            .wake();
        }
    }
}

impl<P: Place> fmt::Debug for Notify<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify").finish_non_exhaustive()
    }
}

impl<P: Place> fmt::Debug for Notified<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified").finish_non_exhaustive()
    }
}
