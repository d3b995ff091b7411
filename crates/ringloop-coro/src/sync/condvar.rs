//! Waiting for a change of what a [`Mutex`] guards.
//!
//! Owns: [`Condvar`]. Called by: coroutines, threads and async code. It never wakes without a
//! notification; a wait still belongs into a loop, since the value may have changed again.

use super::mutex::{Mutex, MutexGuard};
use super::waiters::{Line, LineWait, Waiters, wake};
use crate::atomics::locked;
use crate::wait::{block_on, block_on_anywhere};
use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::task::Waker;
use std::time::Duration;

/// Lets the holder of a [`Mutex`] wait for a change, and others notify it.
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

/// Whether a wait reached its time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the wait reached its time limit.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self { waiters: std::sync::Mutex::new(Waiters::new()) }
    }

    /// Unlocks the mutex, waits for a notification, and locks it again.
    ///
    /// # Cancel safety
    /// A cancelled coroutine does not hold the lock; its notification goes to the next waiter.
    #[track_caller]
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        block_on_anywhere(self.wait_async(guard), "Condvar::wait_async()")
    }

    /// As [`Condvar::wait`]: for `select!` and async code.
    ///
    /// # Cancel safety
    /// A wait that is dropped does not hold the lock; its notification goes to the next waiter.
    pub async fn wait_async<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex();
        self.notified(guard).await;
        self.relock(mutex, true).await
    }

    /// Waits while `condition` is true.
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

    /// As [`Condvar::wait`], for at most `limit`.
    ///
    /// # Panics
    /// Outside of a coroutine.
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let mutex = guard.mutex();
        block_on(async {
            let waited = ringloop::time::timeout(limit, self.notified(guard)).await;
            let guard = self.relock(mutex, waited.is_ok()).await;
            (guard, WaitTimeoutResult(waited.is_err()))
        })
    }

    async fn relock<'a, T: ?Sized>(
        &self,
        mutex: &'a Mutex<T>,
        was_notified: bool,
    ) -> MutexGuard<'a, T> {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        let notification = was_notified.then(|| Notification(self));
        let guard = mutex.lock_async().await;
        mem::forget(notification);
        guard
    }

    /// Wakes the waiter that has waited longest.
    pub fn notify_one(&self) {
        let first = locked(&self.waiters).pop();
        wake(first);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        let all = locked(&self.waiters).take_all();
        all.for_each(Waker::wake);
    }

    /// Enters the line, then unlocks the mutex; ready once notified.
    fn notified<'a, T: ?Sized>(&'a self, guard: MutexGuard<'a, T>) -> impl Future<Output = ()> {
        let mut guard = Some(guard);
        let mut wait = LineWait::<_, Notifications>::new(&self.waiters);
        poll_fn(move |cx| {
            let polled = wait.poll(cx, |waiters, ticket| {
                let is_woken = !waiters.contains(ticket?);
                is_woken.then_some(())
            });
            drop(guard.take());
            polled
        })
    }
}

struct Notifications;

impl Line<Waiters> for Notifications {
    fn waiters(waiters: &mut Waiters) -> &mut Waiters {
        waiters
    }

    fn abandon(waiters: &mut Waiters, was_in_line: bool) -> Option<Waker> {
        if was_in_line { None } else { waiters.pop() }
    }
}

/// A notification whose receiver does not hold the lock yet. If it never does, dropping this
/// notifies the next waiter.
struct Notification<'a>(&'a Condvar);

impl Drop for Notification<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
