//! Releases the interpreter to other threads on request.
//!
//! Python code does that at function entries, and waiting does; compiled callbacks do not, and a
//! busy loop never waits. So the turn regularly calls an empty Python function, which releases the
//! interpreter if a thread has waited for `sys.getswitchinterval()`, and does nothing otherwise.
//! Releasing the lock more often, for a moment each, would be worse: the waiter wakes up, comes too
//! late, and starts waiting again.
//!
//! Called by: the turn, never while a cell of the loop is open.

use std::sync::atomic::Ordering::Relaxed;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;
use ringloop::embed::sys::clock;

use super::core::LoopCore;
use crate::ffi::{self, Obj, intern};
use crate::limits;

/// When to read the clock again within a batch: after a number of cheap callbacks.
pub(super) struct Looks {
    left: usize,
    step: usize,
    looked_ns: u64,
}

impl Default for Looks {
    fn default() -> Self {
        Self { left: limits::READY_CALLBACKS_UNCLOCKED, step: 1, looked_ns: 0 }
    }
}

impl Looks {
    /// Counts a callback, and looks if it is time.
    #[inline]
    pub fn count(&mut self, core: &LoopCore, py: Python<'_>) -> PyResult<()> {
        if self.is_due() { self.look(core, py) } else { Ok(()) }
    }

    /// Counts a callback; whether it is time to look.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Reads the clock, and releases the interpreter if that is due.
    #[cold]
    pub fn look(&mut self, core: &LoopCore, py: Python<'_>) -> PyResult<()> {
        let now_ns = clock::monotonic_ns();
        let is_quick = now_ns - self.looked_ns < limits::LOOK_NANOSECONDS;
        self.step = if is_quick { (self.step * 2).min(limits::LOOK_CALLBACKS_MAX) } else { 1 };
        (self.left, self.looked_ns) = (self.step, now_ns);
        core.give_way_at(py, now_ns)
    }
}

impl LoopCore {
    /// Releases the interpreter to waiting threads, if that was not done recently.
    ///
    /// # Errors
    /// What a signal handler raises.
    #[inline]
    pub(super) fn give_way_at(&self, py: Python<'_>, now_ns: u64) -> PyResult<()> {
        let gave_ns = self.gave_way_ns.load(Relaxed);
        if now_ns.saturating_sub(gave_ns) < limits::HOLD_NANOSECONDS {
            return Ok(());
        }
        self.gave_way_ns.store(now_ns, Relaxed);
        let nothing = NOTHING.get_or_try_init(py, || empty_function(py))?;
        ffi::call_no_args(py, nothing).map(drop)
    }
}

static NOTHING: PyOnceLock<Obj> = PyOnceLock::new();

fn empty_function(py: Python<'_>) -> PyResult<Obj> {
    let code = c"def nothing(): pass";
    let module = PyModule::from_code(py, code, c"<ringloop>", c"ringloop._nothing")?;
    Ok(module.getattr(intern!(py, "nothing"))?.into())
}
