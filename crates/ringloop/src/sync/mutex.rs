//! A lock whose waiting is a task's: one permit, and a value that its holder may change.
//!
//! Owns: the value. Never does: poison; a task that panics gives the lock back.

use super::place::Place;
use super::semaphore::{Permit, Semaphore};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A value under a lock; see [`crate::sync::Mutex`] and [`crate::sync::local::Mutex`].
///
/// Where nothing is awaited while it is held, a `std::sync::Mutex` or a `RefCell` is the better choice.
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
pub struct Mutex<T, P: Place> {
    turn: Semaphore<P>,
    value: P::Cell<T>,
}

impl<T, P: Place> Mutex<T, P> {
    /// A value that nobody holds.
    pub fn new(value: T) -> Self {
        Self {
            turn: Semaphore::new(1),
            value: P::cell(value),
        }
    }

    /// Wait for the lock, in the order of asking.
    /// Cancel safety: dropping the future gives up the place in the line.
    pub async fn lock(&self) -> MutexGuard<'_, T, P> {
        loop {
            let permit = self.turn.acquire(1).await;
            if let Some(guard) = self.guard(permit) {
                return guard;
            }
        }
    }

    /// Take the lock now, if it is free and nobody waits for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, P>> {
        self.guard(self.turn.try_acquire(1)?)
    }

    /// The value; nobody holds the lock.
    pub fn into_inner(self) -> T {
        P::into_inner(self.value)
    }

    /// Whoever has the permit finds the cell free.
    fn guard(&self, permit: Permit<P>) -> Option<MutexGuard<'_, T, P>> {
        Some(MutexGuard {
            value: P::try_guard(&self.value)?,
            _permit: permit,
        })
    }
}

/// The lock, held; dropping it lets the next one in.
pub struct MutexGuard<'a, T: 'a, P: Place> {
    // Dropped in this order: the value is free before the next one is told.
    value: P::Guard<'a, T>,
    _permit: Permit<P>,
}

impl<'a, T: 'a, P: Place> Deref for MutexGuard<'a, T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'a, T: 'a, P: Place> DerefMut for MutexGuard<'a, T, P> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T, P: Place> fmt::Debug for Mutex<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("is_free", &(self.turn.available() > 0))
            .finish_non_exhaustive()
    }
}

impl<'a, T: fmt::Debug + 'a, P: Place> fmt::Debug for MutexGuard<'a, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
