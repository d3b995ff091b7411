//! Permits, first in, first out, over the engine's semaphore (`ringloop::sync`).
//!
//! Owns: [`Semaphore`]. Called by: coroutines, threads and async code; `RwLock` and `OnceLock` are
//! made of it.

use crate::wait::block_on_anywhere;
use ringloop::sync::AnyThread;
use std::future::Future;

/// Permits that were acquired; dropping it releases them.
pub type Permit = ringloop::sync::Permit<AnyThread>;

/// A number of permits; a clone shares them.
///
/// ```
/// use ringloop_coro::sync::Semaphore;
///
/// ringloop_coro::start(1, || {
///     let at_once = Semaphore::new(2);
///     let permit = at_once.acquire(2);
///     assert!(at_once.try_acquire(1).is_none());
///     drop(permit);
///     assert_eq!(at_once.available(), 2);
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore(ringloop::sync::Semaphore);

impl Semaphore {
    /// A semaphore with `permits` permits.
    pub fn new(permits: usize) -> Self {
        Self(ringloop::sync::Semaphore::new(permits))
    }

    /// Waits for `count` permits; a small request does not overtake an earlier large one.
    #[track_caller]
    pub fn acquire(&self, count: usize) -> Permit {
        match self.0.try_acquire(count) {
            Some(permit) => permit,
            None => block_on_anywhere(self.0.acquire(count), "Semaphore::acquire_async()"),
        }
    }

    /// As [`Semaphore::acquire`]: for `select!` and async code.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn acquire_async(&self, count: usize) -> impl Future<Output = Permit> + use<> {
        self.0.acquire(count)
    }

    /// Acquires `count` permits if they are free and there are no waiters.
    pub fn try_acquire(&self, count: usize) -> Option<Permit> {
        self.0.try_acquire(count)
    }

    /// Number of free permits.
    pub fn available(&self) -> usize {
        self.0.available()
    }

    /// Adds permits.
    pub fn add(&self, count: usize) {
        self.0.add(count);
    }
}
