//! What is done with a million timers, by nothing but the futures of the runtime's own sleep.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// When timer `index` of `count` is due: all within 50 ms, in an order of no pattern.
pub fn timer_delay(index: usize, count: usize) -> Duration {
    // A step that shares no divisor with a power of ten visits every place once.
    let place = (index * 7_919 + 13) % count.max(1);
    Duration::from_micros((place * 50_000 / count.max(1)) as u64)
}

/// Arm every timer, drop every other one, and wait for those that are left.
pub async fn fire_half<F: Future>(timers: impl Iterator<Item = Pin<Box<F>>>) {
    let mut armed: Vec<_> = timers.collect();
    poll_fn(|cx| {
        // One that is due at once is over; it must not be polled again.
        armed.retain_mut(|timer| timer.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    let mut is_kept = false;
    armed.retain(|_| {
        is_kept = !is_kept;
        is_kept
    });
    for timer in armed {
        timer.await;
    }
}
