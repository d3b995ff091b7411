//! Common parts of the contestants: the command line, the clock, and each workload, once in blocking calls and once in
//! futures.
//!
//! Called by: each contestant's `main`. A contestant is called as `bench-NAME WORKLOAD [--option value …]`. A server prints its port on standard output and
//! serves until it is killed; every other workload prints one JSON object on standard error and ends.

mod blocking;
mod futures;

use std::io::Write;
use std::time::Instant;

/// Coroutines, tasks or threads that are started before the first is waited for.
pub const BATCH: usize = 1000;
/// Tasks that yield to each other.
pub const YIELDERS: usize = 100;
/// Tasks that contend for one lock.
pub const LOCKERS: usize = 8;
/// Bytes of a server's receive buffer.
pub const BUFFER_BYTES: usize = 16 * 1024;

/// The command line of a run.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// What to do: `echo`, `spawn`, `batch`, `yield`, `pingpong`, `lock` or `held`.
    pub workload: String,
    /// How many operations to time.
    pub ops: usize,
    /// Threads that run coroutines or tasks.
    pub workers: usize,
}

impl Arguments {
    /// Read the command line; end with a sentence where it is wrong.
    pub fn read() -> Self {
        Self::parse(std::env::args().skip(1)).unwrap_or_else(|sentence| {
            eprintln!("{sentence}");
            std::process::exit(2)
        })
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self {
            workload: words.next().ok_or("which workload?")?,
            ops: 100_000,
            workers: 1,
        };
        while let Some(option) = words.next() {
            let value = words.next().ok_or(format!("{option} needs a value"))?;
            let number = || {
                let parsed = value.parse::<usize>();
                parsed.map_err(|_| format!("{option}: {value} is not a number"))
            };
            match option.as_str() {
                "--ops" => arguments.ops = number()?,
                "--workers" => arguments.workers = number()?,
                // The load generator's, and another suite's.
                "--size" | "--path" => {}
                _ => return Err(format!("{option} is not an option")),
            }
        }
        Ok(arguments)
    }
}

/// Print the port that a server listens on.
pub fn announce(port: u16) {
    let mut out = std::io::stdout().lock();
    // A reader that is gone needs no port.
    let _ = writeln!(out, "{port}").and_then(|()| out.flush());
}

/// Prints the time of the operations since `start`.
pub fn report(ops: usize, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{{\"ops\": {ops}, \"seconds\": {seconds:.9}}}");
}

/// End with a sentence: there is no such workload.
pub fn unknown(workload: &str) -> ! {
    eprintln!("{workload} is not a workload");
    std::process::exit(2)
}
