//! Sleeping, time limits, intervals, by the engine's timers.
//!
//! Owns: [`timeout`], [`Interval`], and names for the engine's sleeps. Called by: coroutines. A
//! timer never fires early, and costs no system call.
//!
//! [`timeout`] limits a future. To limit code that looks blocking, cancel a coroutine that runs it:
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

use crate::wait::block_on;
use std::future::IntoFuture;
use std::time::{Duration, Instant};

pub use crate::wait::sleep;
pub use ringloop::time::{Elapsed, MissedTick, Sleep};

/// Parks the coroutine until `deadline`.
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

/// Waits for `future` for at most `limit`, and drops it then.
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

/// Ticks at a fixed period; the first is at the start.
#[derive(Debug)]
#[must_use = "call tick() to wait"]
pub struct Interval(ringloop::time::Interval);

/// Ticks now and every `period` after. A period of zero counts as one nanosecond.
pub fn interval(period: Duration) -> Interval {
    Interval(ringloop::time::interval(period))
}

/// Ticks at `start` and every `period` after.
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval(ringloop::time::interval_at(start, period))
}

impl Interval {
    /// What happens to ticks whose time passes without a wait; [`MissedTick::Burst`] by default.
    pub fn on_missed(self, missed: MissedTick) -> Self {
        Self(self.0.on_missed(missed))
    }

    /// Parks until the next tick. Returns the time at which it was due.
    #[track_caller]
    pub fn tick(&mut self) -> Instant {
        block_on(self.0.tick())
    }

    /// As [`Interval::tick`]: for `select!`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn tick_async(&mut self) -> Instant {
        self.0.tick().await
    }
}
