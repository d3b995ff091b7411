//! What every contestant has in common: the command line, the clock, and what is said over HTTP.
//!
//! Owns: nothing of a runtime. Called by: each contestant's `main`.
//! Never does: I/O besides the one line that a run prints.
//!
//! A contestant is called as `bench-NAME WORKLOAD [--option value …]`. A server prints its port on
//! standard output and serves until it is killed; every other workload prints one JSON object on
//! standard error and ends.

mod arguments;
mod bell;
mod http;
mod tasks;
mod timers;

pub use arguments::{Arguments, Workload};
pub use bell::wake;
pub use http::{RESPONSE, is_request};
pub use tasks::spawn_and_join;
pub use timers::timers;

use std::io::Write;
use std::time::{Duration, Instant};

/// What `cat` reads and writes at once: the best of 64 KiB to 1 MiB for std on the machine of the results.
pub const CAT_BYTES: usize = 256 * 1024;

/// How long a contestant that can looks for work before it sleeps: what the runner says, in microseconds.
pub fn busy_polling() -> Option<Duration> {
    let micros = std::env::var("BENCH_BUSY_US").ok()?;
    Some(Duration::from_micros(micros.parse().ok()?))
}

/// Print the port that a server listens on.
pub fn announce(port: u16) {
    let mut out = std::io::stdout().lock();
    // Nobody listens any more: there is nothing left to say it to.
    let _ = writeln!(out, "{port}").and_then(|()| out.flush());
}

/// Print how long so many operations took since `start`.
pub fn report(ops: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    // Standard output is what `cat` writes to.
    eprintln!("{{\"ops\": {ops}, \"seconds\": {seconds:.9}}}");
}

/// End with a sentence: this contestant cannot do it.
pub fn unsupported(reason: &str) -> ! {
    eprintln!("{reason}");
    std::process::exit(3)
}
