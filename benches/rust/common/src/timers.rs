//! What is done with a million timers, by nothing but the futures of the runtime's own sleep.

use crate::report;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Arm so many timers by `sleep`, cancel one half of them, wait for the other.
pub async fn timers<F: Future>(ops: usize, sleep: impl Fn(Duration) -> F) {
    let start = Instant::now();
    fire_half((0..ops).map(|index| Box::pin(sleep(timer_delay(index, ops))))).await;
    report(ops as u64, start);
}

/// When timer `index` of `count` is due: all within 50 ms, in an order of no pattern.
fn timer_delay(index: usize, count: usize) -> Duration {
    // A step that shares no divisor with a power of ten visits every place once.
    let place = (index * 7_919 + 13) % count.max(1);
    Duration::from_micros((place * 50_000 / count.max(1)) as u64)
}

/// Arm every timer, drop every other one, and wait for those that are left.
async fn fire_half<F: Future>(timers: impl Iterator<Item = Pin<Box<F>>>) {
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
