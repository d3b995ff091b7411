//! What all contestants share: the command line, the clock, the HTTP messages.
//!
//! Contains nothing of a runtime. Called by: each contestant's `main`.
//! The only I/O is the line that a run prints.
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

/// Read and write size of `cat`: the best of 64 KiB to 1 MiB for std where the results were
/// measured.
pub const CAT_BYTES: usize = 256 * 1024;

/// How long to poll before sleeping, for contestants that can; set by the runner, in microseconds.
pub fn busy_polling() -> Option<Duration> {
    let micros = std::env::var("BENCH_BUSY_US").ok()?;
    Some(Duration::from_micros(micros.parse().ok()?))
}

/// Print the port that a server listens on.
pub fn announce(port: u16) {
    let mut out = std::io::stdout().lock();
    // The reader is gone: there is no way to report it.
    let _ = writeln!(out, "{port}").and_then(|()| out.flush());
}

/// Print how long `ops` operations took since `start`.
pub fn report(ops: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    // Standard output belongs to `cat`.
    eprintln!("{{\"ops\": {ops}, \"seconds\": {seconds:.9}}}");
}

/// Exit with a message: this contestant does not support it.
pub fn unsupported(reason: &str) -> ! {
    eprintln!("{reason}");
    std::process::exit(3)
}
