//! Telling tasks that something has happened, without saying what.
//!
//! Owns: who waits, and one notification for whoever comes next.
//! Never does: count; a hundred notifications with nobody waiting are one.

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
/// notify.notify_one(); // nobody waits: it is kept for the next one
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
    /// The same one.
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
        }
    }
}

impl<P: Place> Notify<P> {
    /// With nothing to tell.
    pub fn new() -> Self {
        Self {
            state: P::share(P::cell(Permits::new(0))),
        }
    }

    /// Wake the one that has waited for the longest time; with nobody waiting, the next one does not wait.
    pub fn notify_one(&self) {
        P::with(&self.state, |state| {
            if state.free() == 0 {
                state.give(1)
            } else {
                Woken::default()
            }
        })
        .wake();
    }

    /// Wake everybody who waits now; nothing is kept for later.
    pub fn notify_all(&self) {
        P::with(&self.state, Permits::grant_all).wake();
    }

    /// Wait for a notification; the place in the line is taken at the first poll.
    /// Cancel safety: one that was meant for a dropped future goes to the next.
    pub fn notified(&self) -> Notified<P> {
        Notified {
            notify: self.clone(),
            ticket: None,
        }
    }
}

/// Waits for a notification.
#[must_use = "a notification is waited for when the future is awaited"]
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
        let told = P::with(&this.notify.state, |state| {
            if state.is_past_share::<P>(1, *ticket) {
                return None;
            }
            Some(state.poll_take(1, ticket, cx.waker()))
        });
        let Some(told) = told else {
            return next_turn(cx);
        };
        if told { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<P: Place> Drop for Notified<P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            P::with(&self.notify.state, |state| {
                let woken = state.leave(ticket);
                // One is kept already: this one is the same.
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
