//! The counts of a run, and its report.
//!
//! Owns: the warm-up and the measured window, counts, latencies, CPU time of both ends.
//! Called by: the drivers, once per response.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::sys;

/// Counts of one run.
pub struct Tally {
    warm_until: Instant,
    over_at: Instant,
    /// Set by the first response of the measured window.
    window: Option<Window>,
    requests: u64,
    errors: u64,
    first_error: Option<String>,
    latencies: Histogram,
    server_pids: Vec<u32>,
}

/// Readings at the start of the measured window.
struct Window {
    started: Instant,
    client_cpu: Duration,
    server_cpu: Option<Duration>,
}

impl Tally {
    /// Start the clock: `warmup` is not counted, then `length` is.
    pub fn start(warmup: Duration, length: Duration, server_pids: Vec<u32>) -> Self {
        let warm_until = Instant::now() + warmup;
        Self {
            warm_until,
            over_at: warm_until + length,
            window: None,
            requests: 0,
            errors: 0,
            first_error: None,
            latencies: Histogram::new(),
            server_pids,
        }
    }

    /// Begin the measured window now, if responses do not mark the end of the warm-up.
    pub fn begin(&mut self, now: Instant) {
        self.window = Some(Window {
            started: now,
            client_cpu: sys::process_cpu_time(),
            server_cpu: self.server_cpu(),
        });
        self.over_at = now + (self.over_at - self.warm_until);
    }

    /// Whether the warm-up is over.
    pub fn is_warm(&self, now: Instant) -> bool {
        now >= self.warm_until
    }

    /// Count what the server received in the measured window.
    pub fn received(&mut self, requests: u64) {
        self.requests = requests;
    }

    /// Count a response to a request sent at `sent`.
    pub fn completed(&mut self, sent: Instant, now: Instant) {
        if self.window.is_some() {
            self.requests += 1;
            self.latencies.record(now.saturating_duration_since(sent));
        } else if now >= self.warm_until {
            self.begin(now);
        }
    }

    /// Count a failed connection.
    pub fn failed(&mut self, why: &dyn Display) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| why.to_string());
    }

    /// Time left; zero when the run is over.
    pub fn left(&self, now: Instant) -> Duration {
        self.over_at.saturating_duration_since(now)
    }

    /// `None` if there are no server processes, or one of them is gone.
    fn server_cpu(&self) -> Option<Duration> {
        let pids = (!self.server_pids.is_empty()).then_some(&self.server_pids)?;
        pids.iter().map(|pid| sys::cpu_time_of(*pid).ok()).sum()
    }

    /// Close the window and write the counts as one JSON object.
    pub fn report(self, driver: &str) -> String {
        let (mut seconds, mut client_busy, mut server_busy) = (0.0, 0.0, None);
        if let Some(window) = &self.window {
            seconds = window.started.elapsed().as_secs_f64();
            client_busy =
                sys::process_cpu_time().saturating_sub(window.client_cpu).as_secs_f64() / seconds;
            server_busy = match (self.server_cpu(), window.server_cpu) {
                (Some(now), Some(then)) => Some(now.saturating_sub(then).as_secs_f64() / seconds),
                _ => None,
            };
        }
        let rps = if seconds > 0.0 { self.requests as f64 / seconds } else { 0.0 };
        let server_busy = server_busy.map_or("null".into(), |busy| format!("{busy:.5}"));
        let first_error =
            self.first_error.map_or("null".into(), |text| format!("\"{}\"", text.escape_default()));
        format!(
            "{{\"requests\": {}, \"seconds\": {seconds:.6}, \"rps\": {rps:.1}, \"p50_us\": {:.1}, \
             \"p99_us\": {:.1}, \"errors\": {}, \"first_error\": {first_error}, \
             \"client_busy\": {client_busy:.3}, \"server_busy\": {server_busy}, \
             \"driver\": \"{driver}\"}}",
            self.requests,
            self.latencies.percentile_us(0.50),
            self.latencies.percentile_us(0.99),
            self.errors,
        )
    }
}
