//! Work with a million timers, using the runtime's own sleep futures only.

use crate::report;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Arm `ops` timers with `sleep`, cancel one half, wait for the other.
pub async fn timers<F: Future>(ops: usize, sleep: impl Fn(Duration) -> F) {
    let start = Instant::now();
    fire_half((0..ops).map(|index| Box::pin(sleep(timer_delay(index, ops))))).await;
    report(ops as u64, start);
}

/// When timer `index` of `count` is due: all within 50 ms, in scattered order.
fn timer_delay(index: usize, count: usize) -> Duration {
    // A step coprime to the count (a power of ten) visits every position once.
    let place = (index * 7_919 + 13) % count.max(1);
    Duration::from_micros((place * 50_000 / count.max(1)) as u64)
}

/// Arm every timer, drop every second one, and wait for the rest.
async fn fire_half<F: Future>(timers: impl Iterator<Item = Pin<Box<F>>>) {
    let mut armed: Vec<_> = timers.collect();
    poll_fn(|cx| {
        // A timer due immediately completes here; it must not be polled again.
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
