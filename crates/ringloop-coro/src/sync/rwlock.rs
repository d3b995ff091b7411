//! A lock for many readers or one writer, in the order of asking: a waiting writer keeps later readers out.
//!
//! Owns: the value. A reader takes one of many permits, a writer all of them; std's lock, which whoever has permits
//! finds free, lends the value. Never does: poison.

use super::semaphore::{Permit, Semaphore};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// As many readers as there can be.
const READERS_MAX: usize = 1 << 30;

/// A value that many look at, or one changes.
///
/// ```
/// use ringloop_coro::sync::RwLock;
///
/// ringloop_coro::start(1, || {
///     let value = RwLock::new(5);
///     {
///         let (one, other) = (value.read(), value.read());
///         assert_eq!(*one + *other, 10);
///     }
///     *value.write() += 1;
///     assert_eq!(value.into_inner(), 6);
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub struct RwLock<T: ?Sized> {
    turn: Semaphore,
    value: std::sync::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A value that nobody holds.
    pub fn new(value: T) -> Self {
        Self {
            turn: Semaphore::new(READERS_MAX),
            value: std::sync::RwLock::new(value),
        }
    }

    /// The value; nobody holds the lock.
    pub fn into_inner(self) -> T {
        let value = self.value.into_inner();
        value.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Hold it for reading, beside other readers.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.reader(self.turn.acquire(1))
    }

    /// Hold it for reading, as a future. Cancel safety: safe.
    pub async fn read_async(&self) -> RwLockReadGuard<'_, T> {
        self.reader(self.turn.acquire_async(1).await)
    }

    /// Hold it for reading if nobody writes or waits to.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        Some(self.reader(self.turn.try_acquire(1)?))
    }

    /// Hold it alone.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.writer(self.turn.acquire(READERS_MAX))
    }

    /// Hold it alone, as a future. Cancel safety: safe.
    pub async fn write_async(&self) -> RwLockWriteGuard<'_, T> {
        self.writer(self.turn.acquire_async(READERS_MAX).await)
    }

    /// Hold it alone if nobody holds it.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        Some(self.writer(self.turn.try_acquire(READERS_MAX)?))
    }

    /// Whoever has a permit finds std's lock free of writers; one that lets go gives the value back first.
    fn reader(&self, permit: Permit) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard {
            value: self.value.read().unwrap_or_else(PoisonError::into_inner),
            _permit: permit,
        }
    }

    /// As for a reader: nobody else has a permit.
    fn writer(&self, permit: Permit) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard {
            value: self.value.write().unwrap_or_else(PoisonError::into_inner),
            _permit: permit,
        }
    }
}

/// The lock, held for reading.
#[must_use = "the lock is given back at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    // Dropped in this order.
    value: std::sync::RwLockReadGuard<'a, T>,
    _permit: Permit,
}

/// The lock, held alone.
#[must_use = "the lock is given back at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    // Dropped in this order.
    value: std::sync::RwLockWriteGuard<'a, T>,
    _permit: Permit,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("is_free", &(self.turn.available() == READERS_MAX))
            .finish_non_exhaustive()
    }
}
