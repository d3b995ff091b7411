//! Notifications without a value: a permit, of which at most one is stored.

use super::place::Place;
use super::semaphore::{Acquire, Permit, Semaphore};
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
#[derive(Debug)]
pub struct Notify<P: Place>(Semaphore<P>);

impl<P: Place> Default for Notify<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Place> Clone for Notify<P> {
    /// A handle of the same `Notify`.
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Place> Notify<P> {
    /// Without a notification.
    pub fn new() -> Self {
        Self(Semaphore::with_max(0, 1))
    }

    /// Wakes the waiter that has waited longest; without one, the next wait is ready at once.
    pub fn notify_one(&self) {
        self.0.add(1);
    }

    /// Wakes all current waiters; stores nothing.
    pub fn notify_all(&self) {
        self.0.grant_all();
    }

    /// Waits for a notification; the first poll enters the line.
    ///
    /// # Cancel safety
    /// Cancel safe: the notification of a dropped future goes to the next waiter.
    pub fn notified(&self) -> Notified<P> {
        Notified(self.0.acquire(1))
    }
}

/// Waits for a notification.
#[derive(Debug)]
#[must_use = "await it to wait for a notification"]
pub struct Notified<P: Place>(Acquire<P>);

impl<P: Place> Future for Notified<P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(Permit::forget)
    }
}
