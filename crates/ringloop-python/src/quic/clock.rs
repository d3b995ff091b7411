//! Maps the caller's clock, a float of seconds, to the protocol's, for endpoints without a socket.

use std::time::{Duration, Instant};

/// The caller's clock; its first reading is the origin of both.
#[derive(Debug)]
pub struct Clock {
    origin: Instant,
    first: Option<f64>,
    last: Instant,
}

impl Clock {
    pub fn new() -> Self {
        let origin = Instant::now();
        Self { origin, first: None, last: origin }
    }

    /// An instant of the caller's clock; `None`: its last reading, or the system clock if there is
    /// none. Readings before the first count as the first, and time does not go back.
    pub fn moment(&mut self, now: Option<f64>) -> Instant {
        let Some(now) = now else {
            return if self.first.is_some() { self.last } else { Instant::now() };
        };
        let first = *self.first.get_or_insert(now);
        let passed = Duration::try_from_secs_f64(now - first).unwrap_or_default();
        self.last = self.last.max(self.origin + passed);
        self.last
    }

    /// The caller's reading at an instant.
    pub fn reading(&self, moment: Instant) -> f64 {
        let passed = moment.saturating_duration_since(self.origin);
        self.first.unwrap_or_default() + passed.as_secs_f64()
    }
}
