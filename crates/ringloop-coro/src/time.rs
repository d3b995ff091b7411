//! Sleeping, time limits, intervals: the engine's timers, never early.
//!
//! Called by: coroutines. Never does: a system call; the next deadline is an argument of the loop's wait.
//!
//! A time limit for a future is [`timeout`]; for code that looks blocking, a coroutine of its own that is cancelled:
//!
//! ```
//! use ringloop_coro::{select, spawn, time};
//! use std::time::Duration;
//!
//! ringloop_coro::start(1, || {
//!     let mut work = spawn(|| time::sleep(Duration::from_secs(3600)));
//!     let in_time = select! {
//!         _ = &mut work => true,
//!         () = time::after(Duration::from_millis(1)) => false
//!     };
//!     assert!(!in_time);
//!     work.cancel();
//! })?;
//! # Ok::<(), ringloop::Error>(())
//! ```

use crate::block_on;
use std::future::IntoFuture;
use std::time::{Duration, Instant};

pub use crate::sleep;
pub use ringloop::time::{Elapsed, MissedTick, Sleep};

/// Park the coroutine until `deadline`.
#[track_caller]
pub fn sleep_until(deadline: Instant) {
    block_on(ringloop::time::sleep_until(deadline));
}

/// A future that is ready after `delay`: for `select!`.
pub fn after(delay: Duration) -> Sleep {
    ringloop::time::sleep(delay)
}

/// A future that is ready at `deadline`: for `select!`.
pub fn at(deadline: Instant) -> Sleep {
    ringloop::time::sleep_until(deadline)
}

/// Wait for `future`, at most `limit`; it is dropped when the time is up.
///
/// ```
/// use ringloop_coro::{sync::channel, time};
/// use std::time::Duration;
///
/// ringloop_coro::start(1, || {
///     let (_sender, receiver) = channel::unbounded::<u8>();
///     assert!(time::timeout(Duration::from_millis(1), receiver.recv_async()).is_err());
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[track_caller]
pub fn timeout<F: IntoFuture>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    block_on(ringloop::time::timeout(limit, future.into_future()))
}

/// Ticks at a fixed distance; the first is at the start.
#[derive(Debug)]
#[must_use = "ticks are waited for by tick()"]
pub struct Interval(ringloop::time::Interval);

/// Tick now and every `period` after.
///
/// Shape: a period of zero counts as one nanosecond.
pub fn interval(period: Duration) -> Interval {
    Interval(ringloop::time::interval(period))
}

/// Tick at `start` and every `period` after.
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval(ringloop::time::interval_at(start, period))
}

impl Interval {
    /// Say what to do about ticks whose time passed while nobody waited; [`MissedTick::Burst`] else.
    pub fn on_missed(self, missed: MissedTick) -> Self {
        Self(self.0.on_missed(missed))
    }

    /// Park until the next tick. Returns the time that it was due.
    #[track_caller]
    pub fn tick(&mut self) -> Instant {
        block_on(self.0.tick())
    }

    /// The next tick, as a future: for `select!`. Cancel safety: safe.
    pub async fn tick_async(&mut self) -> Instant {
        self.0.tick().await
    }
}
