//! A lock for many readers or one writer, first in, first out: a waiting writer blocks later readers.
//!
//! Owns: the value, and a permit for each possible reader; a writer takes all of them. There is no
//! poisoning: a task that panics unlocks.
//!
//! # Invariants
//! 1. References to the value are guards': one that holds all permits makes exclusive ones, the others,
//!    with a permit each, shared ones. A guard gives its permits back when it is dropped.

use super::place::{AnyThread, Place};
use super::semaphore::Permits;
use super::waiters::Ticket;
use crate::executor::{Local, waiting};
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Permits: the largest number of readers.
const READERS_MAX: usize = 1 << 30;

/// A value with many readers or one writer; see [`crate::sync::RwLock`] and
/// [`crate::sync::local::RwLock`].
///
/// If nothing is awaited while it is held, use a `std::sync::RwLock` or a `RefCell`.
///
/// ```
/// # ringloop::Runtime::new()?.block_on(async {
/// let lock = ringloop::sync::local::RwLock::new(5);
/// {
///     let (one, other) = (lock.read().await, lock.read().await);
///     assert_eq!(*one + *other, 10);
///     assert!(lock.try_write().is_none());
/// }
/// *lock.write().await += 1;
/// assert_eq!(lock.into_inner(), 6);
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
/// Threads share it only if they may share the value:
/// ```compile_fail,E0277
/// fn may_be_shared<T: Sync>(_: T) {}
/// may_be_shared(ringloop::sync::RwLock::new(std::cell::Cell::new(1)));
/// ```
pub struct RwLock<T: ?Sized, P: Place> {
    permits: P::Cell<Permits>,
    stays: PhantomData<P::Shared<()>>,
    value: UnsafeCell<T>,
}

// SAFETY: invariant 1: threads share the value by their guards, and it moves with the exclusive one.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T, AnyThread> {}

impl<T, P: Place> RwLock<T, P> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self {
            permits: P::cell(Permits::new(READERS_MAX, READERS_MAX)),
            stays: PhantomData,
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, P: Place> RwLock<T, P> {
    /// Locks it for reading, beside other readers, after the writers that wait.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the line.
    pub async fn read(&self) -> RwLockReadGuard<'_, T, P> {
        RwLockReadGuard { held: self.acquire(1).await }
    }

    /// Locks it for reading if no writer holds it or waits for it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, P>> {
        Some(RwLockReadGuard { held: self.try_acquire(1)? })
    }

    /// Locks it for writing.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the line.
    pub async fn write(&self) -> RwLockWriteGuard<'_, T, P> {
        RwLockWriteGuard { held: self.acquire(READERS_MAX).await, value: PhantomData }
    }

    /// Locks it for writing if it is unlocked and there are no waiters.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, P>> {
        Some(RwLockWriteGuard { held: self.try_acquire(READERS_MAX)?, value: PhantomData })
    }

    /// The value, which nothing else can lock meanwhile.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    fn acquire(&self, count: usize) -> Locking<'_, T, P> {
        Locking { lock: self, count, ticket: None }
    }

    fn try_acquire(&self, count: usize) -> Option<HeldPermits<'_, T, P>> {
        P::with(&self.permits, |permits| permits.try_take(count))
            .then(|| HeldPermits { lock: self, count })
    }
}

/// Waits for permits.
struct Locking<'a, T: ?Sized, P: Place> {
    lock: &'a RwLock<T, P>,
    count: usize,
    ticket: Option<Ticket>,
}

impl<'a, T: ?Sized, P: Place> Future for Locking<'a, T, P> {
    type Output = HeldPermits<'a, T, P>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (lock, count) = (self.lock, self.count);
        let ticket = &mut self.ticket;
        let taken = P::with(&lock.permits, |permits| {
            let may = !permits.is_past_share::<P>(count, *ticket);
            may.then(|| permits.poll_take(count, ticket, cx.waker()))
        });
        match taken {
            None => Local::next_turn(cx),
            Some(false) => waiting("a lock"),
            Some(true) => Poll::Ready(HeldPermits { lock, count }),
        }
    }
}

impl<T: ?Sized, P: Place> Drop for Locking<'_, T, P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            P::with(&self.lock.permits, |permits| permits.leave(ticket)).wake();
        }
    }
}

/// Permits of a lock; dropping it returns them.
struct HeldPermits<'a, T: ?Sized, P: Place> {
    lock: &'a RwLock<T, P>,
    count: usize,
}

impl<T: ?Sized, P: Place> Drop for HeldPermits<'_, T, P> {
    fn drop(&mut self) {
        P::with(&self.lock.permits, |permits| permits.give(self.count)).wake();
    }
}

/// A lock held for reading; dropping the guard unlocks it.
#[must_use = "it is unlocked at once"]
pub struct RwLockReadGuard<'a, T: ?Sized + 'a, P: Place> {
    held: HeldPermits<'a, T, P>,
}

/// A lock held for writing; dropping the guard unlocks it.
#[must_use = "it is unlocked at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized + 'a, P: Place> {
    held: HeldPermits<'a, T, P>,
    /// `Send` and `Sync` as a reference to the value.
    value: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized + 'a, P: Place> Deref for RwLockReadGuard<'a, T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: invariant 1.
        unsafe { &*self.held.lock.value.get() }
    }
}

impl<'a, T: ?Sized + 'a, P: Place> Deref for RwLockWriteGuard<'a, T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: invariant 1.
        unsafe { &*self.held.lock.value.get() }
    }
}

impl<'a, T: ?Sized + 'a, P: Place> DerefMut for RwLockWriteGuard<'a, T, P> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 1, and the guard is borrowed alone.
        unsafe { &mut *self.held.lock.value.get() }
    }
}

impl<T: ?Sized, P: Place> fmt::Debug for RwLock<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = P::with(&self.permits, |permits| permits.free());
        f.debug_struct("RwLock").field("is_free", &(free == READERS_MAX)).finish_non_exhaustive()
    }
}

impl<T: Default, P: Place> Default for RwLock<T, P> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<'a, T: ?Sized + fmt::Debug + 'a, P: Place> fmt::Debug for RwLockReadGuard<'a, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'a, T: ?Sized + fmt::Debug + 'a, P: Place> fmt::Debug for RwLockWriteGuard<'a, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
