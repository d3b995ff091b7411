//! Waiting for a change of what a [`Mutex`] guards.
//!
//! Never does: wake without a reason; a wait still belongs into a loop, since the value may have changed again.

use super::mutex::MutexGuard;
use super::waiters::{Ticket, Waiters};
use crate::atomics::locked;
use crate::wait::block_on_anywhere;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Lets who holds a [`Mutex`](super::Mutex) wait for a change, and others tell of it.
///
/// ```
/// use ringloop_coro::sync::{Condvar, Mutex};
/// use std::sync::Arc;
///
/// ringloop_coro::start(1, || {
///     let pair = Arc::new((Mutex::new(false), Condvar::new()));
///     let theirs = Arc::clone(&pair);
///     drop(ringloop_coro::spawn(move || {
///         *theirs.0.lock() = true;
///         theirs.1.notify_one();
///     }));
///     let ready = pair.1.wait_while(pair.0.lock(), |ready| !*ready);
///     assert!(*ready);
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[derive(Default)]
pub struct Condvar {
    waiters: std::sync::Mutex<Waiters>,
}

/// Whether a wait ended by its time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was up.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// With nobody waiting.
    pub const fn new() -> Self {
        Self {
            waiters: std::sync::Mutex::new(Waiters::new()),
        }
    }

    /// Give the lock back, wait to be notified, and hold it again.
    ///
    /// Cancellation: a coroutine that is cancelled here does not hold the lock; a notification that was meant for it
    /// goes to the next.
    #[track_caller]
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        block_on_anywhere(self.notified(guard), "Condvar::wait_async()");
        let told = PassOnGuard(self);
        let guard = mutex.lock();
        mem::forget(told);
        guard
    }

    /// As [`Condvar::wait`], as a future.
    ///
    /// Cancel safety: a notification that was meant for it goes to the next.
    pub async fn wait_async<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        self.notified(guard).await;
        let told = PassOnGuard(self);
        let guard = mutex.lock_async().await;
        mem::forget(told);
        guard
    }

    /// Wait while `condition` holds.
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// As [`Condvar::wait`], for `limit` at most. In a coroutine.
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let mutex = guard.mutex();
        let waited = crate::block_on(ringloop::time::timeout(limit, self.notified(guard)));
        let told = waited.is_ok().then(|| PassOnGuard(self));
        let guard = mutex.lock();
        mem::forget(told);
        (guard, WaitTimeoutResult(waited.is_err()))
    }

    /// Wake the one that has waited for the longest time.
    pub fn notify_one(&self) {
        let first = locked(&self.waiters).first();
        if let Some(waker) = first {
            waker.wake();
        }
    }

    /// Wake all.
    pub fn notify_all(&self) {
        let all = locked(&self.waiters).all();
        all.for_each(std::task::Waker::wake);
    }

    fn notified<'a, T: ?Sized>(&'a self, guard: MutexGuard<'a, T>) -> Notified<'a, T> {
        Notified {
            condvar: self,
            guard: Some(guard),
            ticket: None,
        }
    }
}

/// Stands in the line before it lets go of the lock.
struct Notified<'a, T: ?Sized> {
    condvar: &'a Condvar,
    guard: Option<MutexGuard<'a, T>>,
    ticket: Option<Ticket>,
}

impl<T: ?Sized> Future for Notified<'_, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let condvar = self.condvar;
        let mut waiters = locked(&condvar.waiters);
        if let Some(ticket) = self.ticket
            && !waiters.stands(ticket)
        {
            drop(waiters);
            self.ticket = None;
            return Poll::Ready(());
        }
        waiters.stand(&mut self.ticket, cx.waker());
        drop(waiters);
        self.guard = None;
        Poll::Pending
    }
}

impl<T: ?Sized> Drop for Notified<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && !locked(&self.condvar.waiters).leave(ticket)
        {
            self.condvar.notify_one();
        }
    }
}

/// A notification whose receiver does not hold the lock yet: where it never does, the next one is told.
struct PassOnGuard<'a>(&'a Condvar);

impl Drop for PassOnGuard<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
