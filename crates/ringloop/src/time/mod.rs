//! Layer 4: sleeping and time limits by the engine's timers.
//!
//! Called by: applications. A timer costs no system call: the next deadline is an argument of the wait.

mod interval;

use crate::executor::{Local, TimerKey, waiting};
use crate::limits;
use crate::sys::clock;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pub use interval::{Interval, MissedTick, interval, interval_at};

/// Completes once the monotonic clock has passed the deadline, never before.
#[derive(Debug)]
#[must_use = "a sleep does nothing until it is awaited"]
pub struct Sleep {
    deadline_ns: u64,
    armed: Option<(Local, TimerKey)>,
}

/// Waits for `delay`.
pub fn sleep(delay: Duration) -> Sleep {
    let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    Sleep { deadline_ns: clock::monotonic_ns().saturating_add(delay_ns), armed: None }
}

/// Waits until `deadline`. Of equal deadlines, the first wait is woken first.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline_ns: monotonic_ns_at(deadline), armed: None }
}

/// Converts a time of std's to nanoseconds of the monotonic clock, by one pair of readings for all, so
/// that equal times stay equal. The order of the readings makes it late, never early.
fn monotonic_ns_at(deadline: Instant) -> u64 {
    static READINGS: OnceLock<(Instant, u64)> = OnceLock::new();
    let (instant, clock_ns) = *READINGS.get_or_init(|| {
        let instant = Instant::now();
        (instant, clock::monotonic_ns())
    });
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    match deadline.checked_duration_since(instant) {
        Some(after) => clock_ns.saturating_add(ns(after)),
        None => clock_ns.saturating_sub(ns(instant.duration_since(deadline))),
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if clock::monotonic_ns() >= self.deadline_ns {
            if self.armed.is_none() && !Local::spend_budget() {
                // A task that polls for past deadlines must not starve the others.
                return Local::next_turn(cx);
            }
            return Poll::Ready(());
        }
        if let Some((local, key)) = &self.armed {
            if !local.is_current() {
                // It was moved here from another loop, which may be stopped.
                local.remove_timer(*key);
            } else if local.engine().timers_mut().update(*key, cx.waker()) {
                return waiting("a timer");
            }
        }
        let local = Local::current();
        let key = local.engine().timers_mut().insert(self.deadline_ns, cx.waker().clone());
        self.armed = Some((local, key));
        waiting("a timer")
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((local, key)) = &self.armed {
            local.remove_timer(*key);
        }
    }
}

/// The deadline passed before the future was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline has passed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(_: Elapsed) -> Self {
        std::io::ErrorKind::TimedOut.into()
    }
}

/// Waits for `future` for at most `limit`.
///
/// # Cancel safety
/// The future is dropped at the limit, so that its own cancel safety applies.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    before(sleep(limit), future).await
}

/// Waits for `future` until `deadline`, which several calls in a row can share; see [`timeout`].
pub async fn timeout_at<F: Future>(deadline: Instant, future: F) -> Result<F::Output, Elapsed> {
    before(sleep_until(deadline), future).await
}

async fn before<F: Future>(sleep: Sleep, future: F) -> Result<F::Output, Elapsed> {
    let mut future = std::pin::pin!(future);
    let mut sleep = std::pin::pin!(sleep);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(value));
        }
        sleep.as_mut().poll(cx).map(|()| Err(Elapsed))
    })
    .await
}

/// Gives every other ready task a turn. The driver has one at least every 16 calls of a task: timers
/// fire, and sockets are served.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        Local::poll_again(cx, limits::POLLS_PER_YIELD)
    })
    .await;
}
