//! A million parked coroutines: their memory, and the rate at which they are spawned.
//! `cargo run --release --example million`
//!
//! Arguments: how many (1,000,000); for how many milliseconds each sleeps at least (10,000), or
//! `readers`: each waits in a read of a socket of its own, for which the process needs two
//! descriptors (`ulimit -n`).

#![allow(clippy::print_stdout, clippy::cast_precision_loss)]

use ringloop_coro::net::UnixStream;
use ringloop_coro::{sleep, spawn_local, start, yield_now};
use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A field of /proc/self/status, in MiB.
fn mebibytes(field: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kibibytes.unwrap_or(0) / 1024)
}

/// Memory of the process, page tables included.
fn held_mebibytes() -> io::Result<u64> {
    Ok(mebibytes("VmRSS")? + mebibytes("VmPTE")?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let count: usize = words.next().map_or(Ok(1_000_000), |word| word.parse())?;
    let pause = match words.next().as_deref() {
        Some("readers") => None,
        word => Some(Duration::from_millis(word.unwrap_or("10000").parse()?)),
    };
    start(1, move || park(count, pause))??;
    Ok(())
}

/// Parks `count` coroutines, asleep for `pause` or in a read, and joins them.
fn park(count: usize, pause: Option<Duration>) -> io::Result<()> {
    let (before, begin) = (held_mebibytes()?, Instant::now());
    let parked = Rc::new(Cell::new(0));
    let mut far_ends = Vec::new();
    let mut handles = Vec::with_capacity(count);
    for _ in 0..count {
        let parked = Rc::clone(&parked);
        handles.push(if let Some(pause) = pause {
            spawn_local(move || {
                parked.set(parked.get() + 1);
                sleep(pause);
                Ok(0)
            })
        } else {
            let (mut stream, far_end) = UnixStream::pair()?;
            far_ends.push(far_end);
            spawn_local(move || {
                parked.set(parked.get() + 1);
                stream.read(&mut [0; 8])
            })
        });
    }
    while parked.get() < count {
        yield_now();
    }
    let took = begin.elapsed().as_secs_f64();
    println!(
        "{count} coroutines are parked after {took:.2} s: {:.0} a second",
        count as f64 / took
    );
    let held = held_mebibytes()? - before;
    println!(
        "resident with page tables {held} MiB, {:.0} bytes each",
        (held << 20) as f64 / count as f64
    );
    let begin = Instant::now();
    drop(far_ends);
    for handle in handles {
        let joined = handle.join();
        joined.map_err(|error| io::Error::other(error.to_string()))??;
    }
    println!("all woken and joined {:.2} s later", begin.elapsed().as_secs_f64());
    Ok(())
}
