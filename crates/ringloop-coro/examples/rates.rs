//! Costs of the core in nanoseconds: spawn and join, switch, park.
//! `cargo run --release --example rates`
//!
//! Arguments: the number of workers (1), and how many of each (1,000,000).

#![allow(clippy::print_stdout, clippy::cast_precision_loss)]

use ringloop_coro::{spawn, spawn_local, start, yield_now};
use std::time::Instant;

fn timed(what: &str, count: u32, work: impl FnOnce()) {
    let begin = Instant::now();
    work();
    let each = begin.elapsed().as_secs_f64() * 1e9 / f64::from(count);
    println!("{what:<44} {each:8.1} ns");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let workers = words.next().map_or(Ok(1), |word| word.parse())?;
    let count: u32 = words.next().map_or(Ok(1_000_000), |word| word.parse())?;
    start(workers, move || {
        timed("ringloop: spawn, await, one by one", count, || {
            ringloop_coro::block_on(async {
                for number in 0..count {
                    assert_eq!(
                        ringloop::spawn(async move { number }).await.ok(),
                        Some(number)
                    );
                }
            });
        });
        timed("spawn, join, one by one", count, || {
            for number in 0..count {
                assert_eq!(spawn(move || number).join().ok(), Some(number));
            }
        });
        timed("spawn_local, join, one by one", count, || {
            for number in 0..count {
                assert_eq!(spawn_local(move || number).join().ok(), Some(number));
            }
        });
        timed("spawn 1,000, join 1,000", count / 1000 * 1000, || {
            for _ in 0..count / 1000 {
                let handles: Vec<_> = (0..1000).map(|number| spawn(move || number)).collect();
                for (number, handle) in handles.into_iter().enumerate() {
                    assert_eq!(handle.join().ok(), Some(number as u32 as i32));
                }
            }
        });
        timed("yield between 2", count, || {
            let other = spawn_local(move || (0..count / 2).for_each(|_| yield_now()));
            (0..count / 2).for_each(|_| yield_now());
            drop(other.join());
        });
        timed("yield between 1,000", count, || {
            let others: Vec<_> = (0..1000)
                .map(|_| spawn_local(move || (0..count / 1000).for_each(|_| yield_now())))
                .collect();
            for other in others {
                drop(other.join());
            }
        });
        timed("park and wake (ringloop's yield)", count, || {
            (0..count).for_each(|_| ringloop_coro::block_on(ringloop::time::yield_now()));
        });
    })?;
    Ok(())
}
