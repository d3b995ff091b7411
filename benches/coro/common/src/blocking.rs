//! The programs of those whose calls block: threads and coroutines.
//!
//! Owns: every workload in their shape. Called by: the contestants in the shape of the standard library, each with its
//! own names for it. Never does: choose a runtime.

/// Write `run`, which does what the command line asks for, with the names given.
///
/// `channel` makes a sender and a receiver, `mutex` a lock, whose guard `take` waits for.
#[macro_export]
macro_rules! blocking {
    (
        spawn: $spawn:path,
        yield_now: $yield_now:path,
        channel: $channel:path,
        mutex: $mutex:path,
        take: $take:path,
        bind: $bind:path,
        stream: $Stream:ty $(,)?
    ) => {
        fn run(arguments: &$crate::Arguments) -> std::io::Result<()> {
            let ops = arguments.ops;
            match arguments.workload.as_str() {
                "echo" => return serve(),
                "spawn" => spawn_each(ops),
                "batch" => spawn_batches(ops),
                "yield" => yields(ops),
                "pingpong" => ping_pong(ops),
                "lock" => lock(ops, false),
                "held" => lock(ops, true),
                other => $crate::unknown(other),
            }
            Ok(())
        }

        fn serve() -> std::io::Result<()> {
            let listener = $bind("127.0.0.1:0")?;
            $crate::announce(listener.local_addr()?.port());
            loop {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                // A connection that fails does not concern the others.
                drop($spawn(move || echo(stream)));
            }
        }

        fn echo(mut stream: $Stream) -> std::io::Result<()> {
            use std::io::{Read, Write};
            let mut buffer = vec![0; $crate::BUFFER_BYTES];
            loop {
                let count = stream.read(&mut buffer)?;
                if count == 0 {
                    return Ok(());
                }
                stream.write_all(&buffer[..count])?;
            }
        }

        fn spawn_each(ops: usize) {
            let start = std::time::Instant::now();
            for number in 0..ops {
                let one = $spawn(move || number);
                assert!(one.join().is_ok_and(|result| result == number));
            }
            $crate::report(ops, start);
        }

        fn spawn_batches(ops: usize) {
            let start = std::time::Instant::now();
            for _ in 0..ops / $crate::BATCH {
                let batch: Vec<_> = (0..$crate::BATCH)
                    .map(|number| $spawn(move || number))
                    .collect();
                for (number, one) in batch.into_iter().enumerate() {
                    assert!(one.join().is_ok_and(|result| result == number));
                }
            }
            $crate::report(ops, start);
        }

        fn yields(ops: usize) {
            let start = std::time::Instant::now();
            let each = ops / $crate::YIELDERS;
            let all: Vec<_> = (0..$crate::YIELDERS)
                .map(|_| $spawn(move || (0..each).for_each(|_| $yield_now())))
                .collect();
            for one in all {
                assert!(one.join().is_ok());
            }
            $crate::report(ops, start);
        }

        fn ping_pong(ops: usize) {
            let (ping, pinged) = $channel();
            let (pong, ponged) = $channel();
            let other = $spawn(move || {
                while let Ok(number) = pinged.recv() {
                    if pong.send(number).is_err() {
                        break;
                    }
                }
            });
            let start = std::time::Instant::now();
            for number in 0..ops {
                assert!(ping.send(number).is_ok());
                assert!(ponged.recv().is_ok_and(|back| back == number));
            }
            $crate::report(ops, start);
            drop(ping);
            assert!(other.join().is_ok());
        }

        /// Count under a lock, which is held while the others have their turn where it `is_held`.
        fn lock(ops: usize, is_held: bool) {
            let count = std::sync::Arc::new($mutex(0));
            let start = std::time::Instant::now();
            let all: Vec<_> = (0..$crate::LOCKERS)
                .map(|_| {
                    let count = std::sync::Arc::clone(&count);
                    $spawn(move || {
                        for _ in 0..ops / $crate::LOCKERS {
                            let mut count = $take(&count);
                            *count += 1;
                            if is_held {
                                $yield_now();
                            }
                        }
                    })
                })
                .collect();
            for one in all {
                assert!(one.join().is_ok());
            }
            $crate::report(ops, start);
            assert_eq!(*$take(&count), ops / $crate::LOCKERS * $crate::LOCKERS);
        }
    };
}
