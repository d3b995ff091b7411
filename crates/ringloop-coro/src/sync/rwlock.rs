//! A lock for many readers or one writer, first in, first out: a waiting writer blocks later
//! readers.
//!
//! Owns: [`RwLock`] and the value in it. Called by: coroutines, threads and async code. A reader
//! takes one permit, a writer all of them; std's lock, free for a holder of permits, gives access to
//! the value. There is no poisoning.

use super::semaphore::{Permit, Semaphore};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// Permits: the largest number of readers.
const READERS_MAX: usize = 1 << 30;

/// A value with many readers or one writer.
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
    permits: Semaphore,
    value: std::sync::RwLock<T>,
}

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self { permits: Semaphore::new(READERS_MAX), value: std::sync::RwLock::new(value) }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        let value = self.value.into_inner();
        value.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks it for reading, beside other readers.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.reader(self.permits.acquire(1))
    }

    /// As [`RwLock::read`]: for `select!` and async code.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read_async(&self) -> RwLockReadGuard<'_, T> {
        self.reader(self.permits.acquire_async(1).await)
    }

    /// Locks it for reading if no writer holds it or waits for it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        Some(self.reader(self.permits.try_acquire(1)?))
    }

    /// Locks it for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.writer(self.permits.acquire(READERS_MAX))
    }

    /// As [`RwLock::write`]: for `select!` and async code.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn write_async(&self) -> RwLockWriteGuard<'_, T> {
        self.writer(self.permits.acquire_async(READERS_MAX).await)
    }

    /// Locks it for writing if it is unlocked.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        Some(self.writer(self.permits.try_acquire(READERS_MAX)?))
    }

    /// With a permit, std's lock has no writer: guards unlock it before they return their permits.
    fn reader(&self, permit: Permit) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard {
            value: self.value.read().unwrap_or_else(PoisonError::into_inner),
            _permit: permit,
        }
    }

    /// With all permits, std's lock is free.
    fn writer(&self, permit: Permit) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard {
            value: self.value.write().unwrap_or_else(PoisonError::into_inner),
            _permit: permit,
        }
    }
}

/// A lock held for reading.
#[must_use = "it is unlocked at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    // Dropped in this order.
    value: std::sync::RwLockReadGuard<'a, T>,
    _permit: Permit,
}

/// A lock held for writing.
#[must_use = "it is unlocked at once"]
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
            .field("is_free", &(self.permits.available() == READERS_MAX))
            .finish_non_exhaustive()
    }
}
