//! The programs of those whose calls are futures.
//!
//! Owns: every workload in their shape but the server, whose buffers each runtime has in its own way. Called by: the
//! contestants with futures, each with its own names for it. Never does: choose a runtime.

/// Write `run`, which does what the command line asks for, with the names given.
///
/// `serve` is the contestant's own; `channel` makes one of so many places; `mutex` a lock, which tasks have in common by
/// `shared`.
#[macro_export]
macro_rules! futures {
    (
        serve: $serve:path,
        spawn: $spawn:path,
        yield_now: $yield_now:path,
        channel: $channel:path,
        mutex: $mutex:path,
        shared: $shared:path $(,)?
    ) => {
        async fn run(arguments: $crate::Arguments) -> std::io::Result<()> {
            let ops = arguments.ops;
            match arguments.workload.as_str() {
                "echo" => return $serve().await,
                "spawn" => spawn_each(ops).await,
                "batch" => spawn_batches(ops).await,
                "yield" => yields(ops).await,
                "pingpong" => ping_pong(ops).await,
                "lock" => lock(ops, false).await,
                "held" => lock(ops, true).await,
                other => $crate::unknown(other),
            }
            Ok(())
        }

        async fn spawn_each(ops: usize) {
            let start = std::time::Instant::now();
            for number in 0..ops {
                let task = $spawn(async move { number });
                assert!(task.await.is_ok_and(|result| result == number));
            }
            $crate::report(ops, start);
        }

        async fn spawn_batches(ops: usize) {
            let start = std::time::Instant::now();
            for _ in 0..ops / $crate::BATCH {
                let batch: Vec<_> = (0..$crate::BATCH)
                    .map(|number| $spawn(async move { number }))
                    .collect();
                for (number, one) in batch.into_iter().enumerate() {
                    assert!(one.await.is_ok_and(|result| result == number));
                }
            }
            $crate::report(ops, start);
        }

        async fn yields(ops: usize) {
            let start = std::time::Instant::now();
            let each = ops / $crate::YIELDERS;
            let all: Vec<_> = (0..$crate::YIELDERS)
                .map(|_| {
                    $spawn(async move {
                        for _ in 0..each {
                            $yield_now().await;
                        }
                    })
                })
                .collect();
            for one in all {
                assert!(one.await.is_ok());
            }
            $crate::report(ops, start);
        }

        async fn ping_pong(ops: usize) {
            let (ping, mut pinged) = $channel(1);
            let (pong, mut ponged) = $channel(1);
            let other = $spawn(async move {
                while let Some(number) = pinged.recv().await {
                    if pong.send(number).await.is_err() {
                        break;
                    }
                }
            });
            let start = std::time::Instant::now();
            for number in 0..ops {
                assert!(ping.send(number).await.is_ok());
                assert_eq!(ponged.recv().await, Some(number));
            }
            $crate::report(ops, start);
            drop(ping);
            assert!(other.await.is_ok());
        }

        /// Count under a lock, which is held while the others have their turn where it `is_held`.
        async fn lock(ops: usize, is_held: bool) {
            let count = $shared($mutex(0));
            let start = std::time::Instant::now();
            let all: Vec<_> = (0..$crate::LOCKERS)
                .map(|_| {
                    let count = count.clone();
                    $spawn(async move {
                        for _ in 0..ops / $crate::LOCKERS {
                            let mut count = count.lock().await;
                            *count += 1;
                            if is_held {
                                $yield_now().await;
                            }
                        }
                    })
                })
                .collect();
            for one in all {
                assert!(one.await.is_ok());
            }
            $crate::report(ops, start);
            assert_eq!(*count.lock().await, ops / $crate::LOCKERS * $crate::LOCKERS);
        }
    };
}
