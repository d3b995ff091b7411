//! A million parked coroutines: what they cost in memory, and how fast they are made.
//! `cargo run --release --example million`
//!
//! Arguments: how many (1,000,000), for how many milliseconds each sleeps at least (10,000).

#![allow(clippy::print_stdout, clippy::cast_precision_loss)]

use ringloop_coro::{sleep, spawn_local, start, yield_now};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A field of /proc/self/status, in MiB.
fn mebibytes(field: &str) -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kibibytes.unwrap_or(0) / 1024)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let count: usize = words.next().map_or(Ok(1_000_000), |word| word.parse())?;
    let pause = words.next().map_or(Ok(10_000), |word| word.parse())?;
    start(1, move || -> std::io::Result<()> {
        let (parked, begin) = (Rc::new(Cell::new(0)), Instant::now());
        let handles: Vec<_> = (0..count)
            .map(|_| {
                let parked = Rc::clone(&parked);
                spawn_local(move || {
                    parked.set(parked.get() + 1);
                    sleep(Duration::from_millis(pause));
                })
            })
            .collect();
        while parked.get() < count {
            yield_now();
        }
        let took = begin.elapsed();
        println!(
            "{count} coroutines sleep after {:.2} s: {:.0} a second",
            took.as_secs_f64(),
            count as f64 / took.as_secs_f64()
        );
        let (resident, tables) = (mebibytes("VmRSS")?, mebibytes("VmPTE")?);
        println!(
            "resident {resident} MiB, page tables {tables} MiB, all told {:.2} GiB",
            (resident + tables) as f64 / 1024.0
        );
        println!(
            "{:.0} bytes each",
            ((resident + tables) << 20) as f64 / count as f64
        );
        let begin = Instant::now();
        for handle in handles {
            handle.join()?;
        }
        println!(
            "all woken and joined {:.2} s later",
            begin.elapsed().as_secs_f64()
        );
        Ok(())
    })??;
    Ok(())
}
