//! A lock for many readers or one writer, over the engine's (`ringloop::sync`).
//!
//! Owns: [`RwLock`]. Called by: coroutines, threads and async code.

use crate::wait::block_on_anywhere;
use ringloop::sync::AnyThread;
use std::fmt;

/// A lock held for reading.
pub type RwLockReadGuard<'a, T> = ringloop::sync::RwLockReadGuard<'a, T, AnyThread>;

/// A lock held for writing.
pub type RwLockWriteGuard<'a, T> = ringloop::sync::RwLockWriteGuard<'a, T, AnyThread>;

/// A value with many readers or one writer, first in, first out: a waiting writer blocks later readers.
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
#[derive(Default)]
pub struct RwLock<T: ?Sized>(ringloop::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self(ringloop::sync::RwLock::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks it for reading, beside other readers.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.0.try_read() {
            Some(guard) => guard,
            None => block_on_anywhere(self.0.read(), "RwLock::read_async()"),
        }
    }

    /// As [`RwLock::read`]: for `select!` and async code.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read_async(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().await
    }

    /// Locks it for reading if no writer holds it or waits for it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    /// Locks it for writing.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match self.0.try_write() {
            Some(guard) => guard,
            None => block_on_anywhere(self.0.write(), "RwLock::write_async()"),
        }
    }

    /// As [`RwLock::write`]: for `select!` and async code.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn write_async(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().await
    }

    /// Locks it for writing if it is unlocked.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
