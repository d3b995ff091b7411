//! Debug mode: source tracebacks, checks before scheduling, and slow callbacks.

use pyo3::prelude::*;

use super::core::LoopCore;
use crate::ffi::{Fallible, Obj, intern};
use ringloop::embed::sys::clock;

/// The caller's stack, as asyncio stores it: it ends at the caller of the native method.
pub fn extract_stack(py: Python<'_>) -> PyResult<Obj> {
    py.import(intern!(py, "asyncio.format_helpers"))?
        .getattr(intern!(py, "extract_stack"))?
        .call0()
        .map(Obj::from)
}

/// Rejects a wrong thread and invalid callbacks (`BaseEventLoop._check_*`).
pub fn check(
    loop_: &Bound<'_, LoopCore>,
    callback: Borrowed<'_, '_, PyAny>,
    method: &str,
    thread: bool,
) -> PyResult<()> {
    let py = loop_.py();
    if thread {
        loop_.call_method0(intern!(py, "_check_thread"))?;
    }
    loop_.call_method1(intern!(py, "_check_callback"), (callback, Fallible(method)))?;
    Ok(())
}

/// Runs a handle and logs it if it took too long.
pub fn run_timed(
    loop_: &Bound<'_, LoopCore>,
    handle: &Bound<'_, PyAny>,
    run: impl FnOnce() -> PyResult<()>,
) -> PyResult<()> {
    let py = loop_.py();
    let current = intern!(py, "_current_handle");
    loop_.setattr(current, handle)?;
    let (result, taken_ns) = timed(run);
    loop_.setattr(current, py.None())?;
    result?;
    tell_if_slow(loop_, taken_ns, |base_events| {
        base_events.call_method1(intern!(py, "_format_handle"), (handle,))
    })
}

/// Runs what a completion calls without a handle, usually a transport's protocol, and logs `object`
/// if it took too long.
#[cold]
pub fn complete_timed(
    loop_: &Bound<'_, LoopCore>,
    object: &Bound<'_, PyAny>,
    run: impl FnOnce() -> PyResult<()>,
) -> PyResult<()> {
    let (result, taken_ns) = timed(run);
    tell_if_slow(loop_, taken_ns, |_| Ok(object.repr()?.into_any())).and(result)
}

fn timed<R>(run: impl FnOnce() -> R) -> (R, u64) {
    let start_ns = clock::monotonic_ns();
    (run(), clock::monotonic_ns() - start_ns)
}

fn tell_if_slow<'py>(
    loop_: &Bound<'py, LoopCore>,
    taken_ns: u64,
    name: impl FnOnce(&Bound<'py, PyModule>) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<()> {
    let py = loop_.py();
    let seconds = taken_ns as f64 / 1e9;
    let limit: f64 = loop_.getattr(intern!(py, "slow_callback_duration"))?.extract()?;
    if seconds >= limit {
        // Looked up where asyncio's own loop finds it, so that a replaced logger gets this line
        // too.
        let base_events = py.import(intern!(py, "asyncio.base_events"))?;
        let name = name(&base_events)?;
        let logger = base_events.getattr(intern!(py, "logger"))?;
        let words = intern!(py, "Executing %s took %.3f seconds");
        logger.call_method1(intern!(py, "warning"), (words, name, Fallible(seconds)))?;
    }
    Ok(())
}
