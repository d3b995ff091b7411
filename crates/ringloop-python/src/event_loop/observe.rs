//! Reading a running loop from other threads, for `ringloop.profiling` and `ringloop.watchdog`.

use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::core::LoopCore;
use super::meters::{Histogram, Meters};
use super::pulse::{Counter, Pulse, Shared};
use crate::ffi::{self, Fallible, Raise as _};

/// What the loop's thread does.
#[derive(Clone, Copy)]
pub enum Phase {
    /// The loop does not run.
    Stopped = 0,
    /// It runs a turn.
    Running = 1,
    /// It sleeps in the kernel: nothing is ready.
    Waiting = 2,
}

/// Phase, turns, sleeps, callbacks.
pub type Beat = (i32, u64, u64, u64);

impl LoopCore {
    fn phase(&self) -> Phase {
        if !self.is_running() {
            Phase::Stopped
        } else if self.pulse.waits() {
            Phase::Waiting
        } else {
            Phase::Running
        }
    }

    pub(super) fn beat(&self) -> Beat {
        let Pulse { sleeps, callbacks, .. } = &self.pulse;
        (self.phase() as i32, self.shared.turns.count(), sleeps.count(), callbacks.count())
    }
}

/// Counters, gauges, histograms.
pub type Numbers = (Vec<u64>, Vec<u64>, Vec<Vec<u64>>);

impl LoopCore {
    pub(super) fn numbers(&self) -> PyResult<Numbers> {
        let Meters { lag, timer_delay, queue_delay, .. } = &self.meters;
        let histograms = [lag, timer_delay, queue_delay].map(Histogram::numbers).into();
        Ok((self.counters(), self.gauges()?, histograms))
    }

    /// Sums since the loop was made, in the order of `COUNTERS` in `ringloop/metrics/_snapshot.py`.
    fn counters(&self) -> Vec<u64> {
        let Meters { waited_ns, submitted, completed, accepted, .. } = &self.meters;
        let Shared { received_bytes, sent_bytes, .. } = &*self.shared;
        let sums = [
            &self.shared.turns,
            &self.pulse.sleeps,
            &self.pulse.callbacks,
            waited_ns,
            submitted,
            completed,
            received_bytes,
            sent_bytes,
            accepted,
        ];
        sums.map(Counter::count).into()
    }

    /// What there is now, in the order of `GAUGES` there.
    fn gauges(&self) -> PyResult<Vec<u64>> {
        let lens = [
            self.ready.with(|ready| ready.len())?,
            self.timers.with(|timers| timers.len())?,
            self.inbox.len()?,
            self.transport_fds.with(|fds| fds.len())?,
            self.watchers.with(|watchers| watchers.polls.len())?,
            self.handlers.with(|handlers| handlers.len())?,
        ];
        Ok(lens.map(|len| len as u64).into())
    }
}

/// Sleep without the interpreter; return the pulse of each loop at the moment of waking, when the
/// interpreter is not asked for yet.
#[pyfunction]
#[pyo3(signature = (loops, seconds))]
pub fn pulses(
    py: Python<'_>,
    loops: Vec<Py<LoopCore>>,
    seconds: f64,
) -> PyResult<Fallible<Vec<Beat>>> {
    ffi::arm();
    let span = Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::raise("seconds must be a number that is not negative"))?;
    let beats = py.detach(|| {
        thread::sleep(span);
        loops.iter().map(|loop_| loop_.get().beat()).collect()
    });
    Ok(Fallible(beats))
}

/// The calls of running threads, from the innermost outwards: for each frame of the list its code
/// and line, and those of its callers.
#[pyfunction]
#[pyo3(signature = (frames))]
pub fn call_stacks(
    py: Python<'_>,
    frames: Vec<Bound<'_, PyAny>>,
) -> PyResult<Fallible<Vec<ffi::Calls>>> {
    ffi::arm();
    ffi::call_stacks(py, &frames).map(Fallible)
}
