//! Work with tasks and channels, using the runtime's own only.

use crate::report;
use std::future::Future;
use std::time::Instant;

/// Start `ops` tasks with `spawn`, each of which returns its number, then join each: `is_own`
/// checks the result.
pub async fn spawn_and_join<T: Future>(
    ops: usize,
    spawn: impl Fn(usize) -> T,
    is_own: impl Fn(T::Output, usize) -> bool,
) {
    let start = Instant::now();
    let tasks: Vec<_> = (0..ops).map(spawn).collect();
    for (number, task) in tasks.into_iter().enumerate() {
        assert!(is_own(task.await, number));
    }
    report(ops as u64, start);
}

/// Send numbers to a task started by `spawn`, each after the previous one came back, over channels
/// of capacity 1. A macro, because no trait names the type that has `send` and `recv`.
#[macro_export]
macro_rules! ping_pong {
    (ops: $ops:expr, channel: $channel:path, spawn: $spawn:expr $(,)?) => {{
        let (ping, mut pinged) = $channel(1);
        let (pong, mut ponged) = $channel(1);
        $spawn(async move {
            while let Some(number) = pinged.recv().await {
                if pong.send(number).await.is_err() {
                    break;
                }
            }
        });
        let start = std::time::Instant::now();
        for number in 0..$ops as u64 {
            assert!(ping.send(number).await.is_ok());
            assert_eq!(ponged.recv().await, Some(number));
        }
        $crate::report($ops as u64, start);
    }};
}
