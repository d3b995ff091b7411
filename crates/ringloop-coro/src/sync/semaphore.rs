//! Permits, taken in the order of asking. The state is the engine's (`ringloop::sync`).

use crate::wait::block_on_anywhere;
use ringloop::sync::AnyThread;
use std::future::Future;

/// Permits that were taken; dropping it gives them back.
pub type Permit = ringloop::sync::Permit<AnyThread>;

/// A number of permits; a clone is the same ones.
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
    /// A semaphore with so many permits.
    pub fn new(permits: usize) -> Self {
        Self(ringloop::sync::Semaphore::new(permits))
    }

    /// Wait for `count` permits; a small wish does not pass a large one that came first.
    #[track_caller]
    pub fn acquire(&self, count: usize) -> Permit {
        match self.0.try_acquire(count) {
            Some(permit) => permit,
            None => block_on_anywhere(self.0.acquire(count), "Semaphore::acquire_async()"),
        }
    }

    /// As [`Semaphore::acquire`], as a future: for `select!` and async code. Cancel safety: safe.
    pub fn acquire_async(&self, count: usize) -> impl Future<Output = Permit> + use<> {
        self.0.acquire(count)
    }

    /// Take `count` permits if they are free and nobody waits.
    pub fn try_acquire(&self, count: usize) -> Option<Permit> {
        self.0.try_acquire(count)
    }

    /// How many are free.
    pub fn available(&self) -> usize {
        self.0.available()
    }

    /// Add to those there are.
    pub fn add(&self, count: usize) {
        self.0.add(count);
    }
}
