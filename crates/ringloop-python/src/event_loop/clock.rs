//! What timers go by: the monotonic clock, or a `time()` that the user put in its place.
//!
//! Owns: knowing which of the two it is. Called by: `schedule`, the turn, and `Loop.__setattr__` when
//! somebody sets `time`. Never does: look for a `time()` at each timer, since that would cost every one
//! a search; so one that is set on the class of a running loop counts from the next run on.

use std::sync::atomic::Ordering::Relaxed;

use pyo3::prelude::*;
use ringloop::embed::sys::clock;

use super::core::LoopCore;
use super::timers;
use crate::ffi::intern;

impl LoopCore {
    /// Find out whether a subclass, or the object itself, has a `time` of its own.
    pub(super) fn look_for_clock(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        let py = loop_.py();
        let name = intern!(py, "time");
        let own = py.get_type::<LoopCore>().getattr(name)?;
        let inherited = loop_.get_type().getattr(name)?.is(&own);
        let on_the_object = match loop_.getattr_opt(intern!(py, "__dict__"))? {
            Some(attributes) => attributes.contains(name)?,
            None => false,
        };
        self.foreign_clock
            .store(!inherited || on_the_object, Relaxed);
        Ok(())
    }

    /// Say whether timers go by a `time()` that is not ours.
    #[inline]
    pub(super) fn has_foreign_clock(&self) -> bool {
        self.foreign_clock.load(Relaxed)
    }

    /// What the clock of the timers reads, in the unit of their deadlines.
    #[inline]
    pub(super) fn now_ns(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<i64> {
        if self.has_foreign_clock() {
            // Rounded as deadlines are: a clock that stands at `when` makes the timer due.
            return foreign_time(loop_).map(timers::deadline_ns);
        }
        Ok(clock::monotonic_ns() as i64)
    }
}

/// Ask the user's clock, in seconds.
#[cold]
pub fn foreign_time(loop_: &Bound<'_, LoopCore>) -> PyResult<f64> {
    loop_
        .call_method0(intern!(loop_.py(), "time"))?
        .extract::<f64>()
}
