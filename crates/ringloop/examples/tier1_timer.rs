//! Timers: three tasks that sleep for different times, and a tick.
//!
//! Look at: a timer is no operation and no system call. The next deadline is an argument of the one call that
//! waits for everything, and a timer never fires early.
//!
//!     cargo run --release --example tier1_timer

use ringloop::Runtime;
use ringloop::time::{interval, sleep};
use std::io::{self, Write};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Runtime::new()?.block_on(run())?
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let naps: Vec<_> = [30, 10, 20]
        .into_iter()
        .map(|delay_ms| {
            ringloop::spawn(async move {
                sleep(Duration::from_millis(delay_ms)).await;
                let late = start.elapsed() >= Duration::from_millis(delay_ms);
                writeln!(io::stdout(), "slept {delay_ms} ms, not less: {late}")
            })
        })
        .collect();
    for nap in naps {
        nap.await??;
    }
    let mut ticks = interval(Duration::from_millis(5));
    for number in 1..=3 {
        ticks.tick().await;
        writeln!(io::stdout(), "tick {number}")?;
    }
    Ok(())
}
