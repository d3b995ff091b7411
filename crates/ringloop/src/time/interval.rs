//! Ticks at a fixed period.
//!
//! Owns: [`Interval`], [`MissedTick`]. Called by: applications. It does not drift: each tick is due at a
//! multiple of the period after the first, unless [`MissedTick`] says otherwise.

use super::{Sleep, sleep_until};
use std::time::{Duration, Instant};

/// What happens to missed ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedTick {
    /// Each missed tick is ready at once.
    #[default]
    Burst,
    /// The next tick is due a period from now.
    Delay,
    /// Missed ticks are skipped; the next is due at the next multiple of the period.
    Skip,
}

/// Ticks at a fixed period; the first is at the start.
#[derive(Debug)]
#[must_use = "call tick() to wait"]
pub struct Interval {
    sleep: Sleep,
    next: Instant,
    period: Duration,
    missed: MissedTick,
}

/// Ticks now and every `period` after.
///
/// A period of zero counts as one nanosecond.
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Ticks at `start` and every `period` after.
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval {
        sleep: sleep_until(start),
        next: start,
        period: period.max(Duration::from_nanos(1)),
        missed: MissedTick::default(),
    }
}

impl Interval {
    /// Sets what happens to missed ticks; [`MissedTick::Burst`] by default.
    pub fn on_missed(mut self, missed: MissedTick) -> Self {
        self.missed = missed;
        self
    }

    /// Waits for the next tick, never early. Returns the time at which it was due.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call returns the tick.
    pub async fn tick(&mut self) -> Instant {
        (&mut self.sleep).await;
        let due = self.next;
        self.next = self.after(due, Instant::now());
        self.sleep = sleep_until(self.next);
        due
    }

    /// Restarts: the next tick is due a period from now.
    pub fn reset(&mut self) {
        self.next = later(Instant::now(), self.period);
        self.sleep = sleep_until(self.next);
    }

    /// The period.
    pub fn period(&self) -> Duration {
        self.period
    }

    fn after(&self, due: Instant, now: Instant) -> Instant {
        let next = later(due, self.period);
        if next > now {
            return next;
        }
        match self.missed {
            MissedTick::Burst => next,
            MissedTick::Delay => later(now, self.period),
            MissedTick::Skip => {
                let late_ns = now.duration_since(due).as_nanos();
                let into_period_ns = late_ns % self.period.as_nanos();
                let into_period = u64::try_from(into_period_ns).unwrap_or(u64::MAX);
                let on_grid = now.checked_sub(Duration::from_nanos(into_period));
                later(on_grid.unwrap_or(now), self.period)
            }
        }
    }
}

/// A time that the clock does not reach replaces one that cannot be represented.
fn later(from: Instant, period: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 100);
    from.checked_add(period).unwrap_or(from + FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_are_made_up_for_put_off_or_left_out() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let after = |missed, now| {
            let interval = interval_at(start, Duration::from_millis(10)).on_missed(missed);
            interval.after(at(20), now)
        };
        for missed in [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip] {
            assert_eq!(after(missed, at(25)), at(30), "in time: {missed:?}");
        }
        assert_eq!(after(MissedTick::Burst, at(57)), at(30));
        assert_eq!(after(MissedTick::Delay, at(57)), at(67));
        assert_eq!(after(MissedTick::Skip, at(57)), at(60));
        assert_eq!(after(MissedTick::Skip, at(60)), at(70), "a tick that is due now was missed");
    }

    #[test]
    fn longest_and_shortest_periods_are_periods() {
        let interval = interval(Duration::MAX);
        assert!(interval.after(Instant::now(), Instant::now()) > Instant::now());
        assert_eq!(super::interval(Duration::ZERO).period(), Duration::from_nanos(1));
    }
}
