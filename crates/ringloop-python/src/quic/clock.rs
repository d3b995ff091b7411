//! Between the clock of who drives an endpoint without a socket, a float of seconds, and the protocol's.

use std::time::{Duration, Instant};

/// The caller's clock; its first reading is the start of both.
#[derive(Debug)]
pub struct Clock {
    origin: Instant,
    first: Option<f64>,
    last: Instant,
}

impl Clock {
    pub fn new() -> Self {
        let origin = Instant::now();
        Self {
            origin,
            first: None,
            last: origin,
        }
    }

    /// A moment of the caller's; `None`: the last one that it told, or the system's where it told none.
    /// One before the first is taken for the first, and time does not go back.
    pub fn moment(&mut self, now: Option<f64>) -> Instant {
        let Some(now) = now else {
            return if self.first.is_some() {
                self.last
            } else {
                Instant::now()
            };
        };
        let first = *self.first.get_or_insert(now);
        let passed = Duration::try_from_secs_f64(now - first).unwrap_or_default();
        self.last = self.last.max(self.origin + passed);
        self.last
    }

    /// What the caller's clock reads at a moment.
    pub fn reading(&self, moment: Instant) -> f64 {
        let passed = moment.saturating_duration_since(self.origin);
        self.first.unwrap_or_default() + passed.as_secs_f64()
    }
}
