//! Clock of the timers: the monotonic clock, or a `time()` that the application overrides; and whether
//! it overrides `call_at()`, by which `call_later()` then goes.
//!
//! Owns: which of the two it is. Called by: `schedule`, the turn, and `Loop.__setattr__` when
//! one of them is set. Timers do not search for an override, which would cost a lookup each; so an
//! override set on the class of a running loop applies from the next run on.

use std::sync::atomic::Ordering::Relaxed;

use pyo3::prelude::*;
use pyo3::types::PyString;
use ringloop::embed::sys::clock;

use super::core::LoopCore;
use super::timers;
use crate::ffi::{self, intern};

impl LoopCore {
    /// Checks whether a subclass or the object itself overrides `time` and `call_at`.
    pub(super) fn look_for_clock(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        let py = loop_.py();
        self.foreign_clock.store(overrides(loop_, intern!(py, "time"))?, Relaxed);
        self.foreign_call_at.store(overrides(loop_, intern!(py, "call_at"))?, Relaxed);
        self.clock_version.store(ffi::type_version(loop_), Relaxed);
        Ok(())
    }

    /// The same for a loop that does not run, where an override counts at once. The object's own is
    /// noticed when it is set.
    #[inline]
    pub(super) fn look_for_clock_again(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        let version = ffi::type_version(loop_);
        if version != 0 && version == self.clock_version.load(Relaxed) {
            return Ok(());
        }
        self.look_for_clock(loop_)
    }

    /// Whether timers use an overridden `time()`.
    #[inline]
    pub(super) fn has_foreign_clock(&self) -> bool {
        self.foreign_clock.load(Relaxed)
    }

    /// Whether `call_later()` uses an overridden `call_at()`.
    #[inline]
    pub(super) fn has_foreign_call_at(&self) -> bool {
        self.foreign_call_at.load(Relaxed)
    }

    /// The timers' clock, in the unit of deadlines; `monotonic_ns` is what the other clock has just
    /// said.
    #[inline]
    pub(super) fn timers_now_ns(
        &self,
        loop_: &Bound<'_, LoopCore>,
        monotonic_ns: Option<u64>,
    ) -> PyResult<i64> {
        if self.has_foreign_clock() {
            // Rounded like deadlines: a clock equal to `when` makes the timer due.
            return foreign_time(loop_).map(timers::deadline_ns);
        }
        Ok(monotonic_ns.unwrap_or_else(clock::monotonic_ns) as i64)
    }
}

/// Whether a subclass or the object itself overrides a method.
fn overrides(loop_: &Bound<'_, LoopCore>, name: &Bound<'_, PyString>) -> PyResult<bool> {
    let py = loop_.py();
    let own = py.get_type::<LoopCore>().getattr(name)?;
    if !loop_.get_type().getattr(name)?.is(&own) {
        return Ok(true);
    }
    match loop_.getattr_opt(intern!(py, "__dict__"))? {
        Some(attributes) => attributes.contains(name),
        None => Ok(false),
    }
}

/// Reads the application's clock, in seconds.
#[cold]
pub fn foreign_time(loop_: &Bound<'_, LoopCore>) -> PyResult<f64> {
    loop_.call_method0(intern!(loop_.py(), "time"))?.extract::<f64>()
}
