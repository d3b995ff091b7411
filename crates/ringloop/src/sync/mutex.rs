//! A lock whose waiters are tasks: one permit, and the value that its holder owns.
//!
//! Owns: the value. There is no poisoning: a task that panics unlocks.
//!
//! # Invariants
//! 1. The holder of the permit owns the value until it gives the permit back.

use super::place::{AnyThread, Place};
use super::semaphore::Permits;
use super::waiters::Ticket;
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A value under a lock; see [`crate::sync::Mutex`] and [`crate::sync::local::Mutex`].
///
/// If nothing is awaited while it is held, use a `std::sync::Mutex` or a `RefCell`.
///
/// ```
/// # ringloop::Runtime::new()?.block_on(async {
/// let lock = ringloop::sync::local::Mutex::new(vec![1]);
/// {
///     let mut list = lock.lock().await;
///     ringloop::time::yield_now().await; // the others wait
///     list.push(2);
/// }
/// assert_eq!(lock.into_inner(), [1, 2]);
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
/// A local one stays on its thread:
/// ```compile_fail,E0277
/// fn may_leave_the_thread<T: Send>(_: T) {}
/// may_leave_the_thread(ringloop::sync::local::Mutex::new(1));
/// ```
/// A guard is `Sync` only if the value is:
/// ```compile_fail,E0277
/// fn may_be_shared<T: Sync>(_: T) {}
/// let lock = ringloop::sync::Mutex::new(std::cell::Cell::new(1));
/// may_be_shared(lock.try_lock());
/// ```
pub struct Mutex<T, P: Place> {
    permits: P::Cell<Permits>,
    value: UnsafeCell<T>,
    stays: PhantomData<P::Shared<()>>,
}

// SAFETY: invariant 1: the value moves between threads with the lock.
unsafe impl<T: Send> Sync for Mutex<T, AnyThread> {}

impl<T, P: Place> Mutex<T, P> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        let permits = P::cell(Permits::new(1));
        Self { permits, value: UnsafeCell::new(value), stays: PhantomData }
    }

    /// Locks the mutex; waiters are served first in, first out.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the line.
    pub async fn lock(&self) -> MutexGuard<'_, T, P> {
        Locking { mutex: self, ticket: None }.await
    }

    /// Locks the mutex if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, P>> {
        P::with(&self.permits, |permits| permits.try_take(1)).then(|| self.guard())
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// For the holder of the permit (invariant 1).
    fn guard(&self) -> MutexGuard<'_, T, P> {
        MutexGuard { mutex: self, value: PhantomData }
    }
}

/// Waits in the line for the lock.
struct Locking<'a, T, P: Place> {
    mutex: &'a Mutex<T, P>,
    ticket: Option<Ticket>,
}

impl<'a, T, P: Place> Future for Locking<'a, T, P> {
    type Output = MutexGuard<'a, T, P>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (mutex, ticket) = (self.mutex, &mut self.ticket);
        if P::with(&mutex.permits, |permits| permits.poll_take(1, ticket, cx.waker())) {
            Poll::Ready(mutex.guard())
        } else {
            Poll::Pending
        }
    }
}

impl<T, P: Place> Drop for Locking<'_, T, P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            P::with(&self.mutex.permits, |permits| permits.leave(ticket)).wake();
        }
    }
}

/// A locked mutex; dropping the guard unlocks it.
pub struct MutexGuard<'a, T: 'a, P: Place> {
    mutex: &'a Mutex<T, P>,
    /// `Send` and `Sync` as a reference to the value.
    value: PhantomData<&'a mut T>,
}

impl<'a, T: 'a, P: Place> Deref for MutexGuard<'a, T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: invariant 1.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<'a, T: 'a, P: Place> DerefMut for MutexGuard<'a, T, P> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 1, and the guard is borrowed alone.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<'a, T: 'a, P: Place> Drop for MutexGuard<'a, T, P> {
    fn drop(&mut self) {
        P::with(&self.mutex.permits, |permits| permits.give(1)).wake();
    }
}

impl<T, P: Place> fmt::Debug for Mutex<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_free = P::with(&self.permits, |permits| permits.free() > 0);
        f.debug_struct("Mutex").field("is_free", &is_free).finish_non_exhaustive()
    }
}

impl<'a, T: fmt::Debug + 'a, P: Place> fmt::Debug for MutexGuard<'a, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use loom::thread;
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    type Counted = Mutex<AtomicU32, AnyThread>;

    /// A task that locks, waits for its wake if it has to, and counts in two steps.
    fn count_under(mutex: &Counted) {
        let woken = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut locking = Locking { mutex, ticket: None };
        let mut poll = || Pin::new(&mut locking).poll(&mut Context::from_waker(&waker));
        let guard = match poll() {
            Poll::Ready(guard) => guard,
            Poll::Pending => {
                while !woken.0.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                let Poll::Ready(guard) = poll() else {
                    panic!("woken without the lock");
                };
                guard
            }
        };
        let before = guard.load(Ordering::Relaxed);
        guard.store(before + 1, Ordering::Relaxed);
    }

    fn model(threads: u32, also: impl Fn(&Counted) + Copy + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let mutex = Arc::new(Counted::new(AtomicU32::new(0)));
            let others: Vec<_> = (0..threads)
                .map(|_| {
                    let mutex = Arc::clone(&mutex);
                    thread::spawn(move || count_under(&mutex))
                })
                .collect();
            also(&mutex);
            for other in others {
                assert!(other.join().is_ok());
            }
            let guard = mutex.try_lock().expect("all threads have ended");
            assert_eq!(guard.load(Ordering::Relaxed), threads, "held by two");
        });
    }

    /// One task at a time owns the value, and a waiter is woken with the lock.
    #[test]
    fn lock_is_handed_over() {
        model(2, |mutex| drop(mutex.try_lock()));
    }

    /// A wait dropped before or after its grant blocks no other.
    #[test]
    fn dropped_wait_hands_the_lock_over() {
        model(2, |mutex| {
            let mut locking = Locking { mutex, ticket: None };
            let waker = Waker::from(Arc::new(Flag(AtomicBool::new(false))));
            drop(Pin::new(&mut locking).poll(&mut Context::from_waker(&waker)));
        });
    }
}
