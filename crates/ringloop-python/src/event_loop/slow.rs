//! Slow callbacks: asyncio's log line in debug mode, and the hook of `set_slow_callback_hook` in any.
//!
//! Called by: the turn, only while [`LoopCore::is_timed`]: two clock reads a callback then, one flag
//! otherwise.

use pyo3::prelude::*;
use ringloop::embed::sys::clock;

use super::core::LoopCore;
use super::handlers::contained;
use super::standard;
use crate::ffi::{self, Fallible, IntoObject as _, Obj, intern};

/// Runs a handle; logs it, and tells the hook, if it took too long.
#[cold]
pub fn run_timed(
    loop_: &Bound<'_, LoopCore>,
    handle: &Bound<'_, PyAny>,
    run: impl FnOnce() -> PyResult<()>,
) -> PyResult<()> {
    let py = loop_.py();
    let is_debug = loop_.get().debug();
    // A handle without other references gives its contents to the call: the log needs them.
    let kept = handle.clone();
    let current = intern!(py, "_current_handle");
    if is_debug {
        loop_.setattr(current, handle)?;
    }
    let (result, taken_ns) = timed(run);
    if is_debug {
        loop_.setattr(current, py.None())?;
    }
    result?;
    if is_debug {
        log_if_slow(loop_, taken_ns, || format_handle(handle))?;
    }
    tell_if_slow(loop_, &kept, taken_ns)
}

/// The same for what a completion calls without a handle, usually a transport's protocol.
#[cold]
pub fn complete_timed(
    loop_: &Bound<'_, LoopCore>,
    object: &Bound<'_, PyAny>,
    run: impl FnOnce() -> PyResult<()>,
) -> PyResult<()> {
    let (result, taken_ns) = timed(run);
    let logged = if loop_.get().debug() {
        log_if_slow(loop_, taken_ns, || Ok(object.repr()?.into_any()))
    } else {
        Ok(())
    };
    let told = tell_if_slow(loop_, object, taken_ns);
    logged.and(told).and(result)
}

/// The same for a callback without a handle, such as a protocol's `connection_made`: debug mode makes
/// one for the line, by `handle`.
#[cold]
pub fn step_timed<'py>(
    loop_: &Bound<'py, LoopCore>,
    step: &Obj,
    handle: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    run: impl FnOnce() -> PyResult<()>,
) -> PyResult<()> {
    let py = loop_.py();
    let (result, taken_ns) = timed(run);
    result?;
    if loop_.get().debug() {
        log_if_slow(loop_, taken_ns, || format_handle(&handle()?))?;
    }
    tell_if_slow(loop_, step.bind(py), taken_ns)
}

/// As asyncio has it: a task's step is shown as its task.
fn format_handle<'py>(handle: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = handle.py();
    standard::BASE_EVENTS.get(intern!(py, "_format_handle"))?.call1((handle,))
}

fn timed<R>(run: impl FnOnce() -> R) -> (R, u64) {
    let start_ns = clock::monotonic_ns();
    (run(), clock::monotonic_ns() - start_ns)
}

/// The hook's errors go to the loop's exception handler.
fn tell_if_slow(
    loop_: &Bound<'_, LoopCore>,
    what: &Bound<'_, PyAny>,
    taken_ns: u64,
) -> PyResult<()> {
    let py = loop_.py();
    let call = loop_.get().slow_hook.with(|hook| {
        let hook = hook.as_ref().filter(|hook| taken_ns >= hook.threshold_ns)?;
        Some(hook.call.clone_ref(py))
    })?;
    let Some(call) = call else { return Ok(()) };
    let seconds: Obj = (taken_ns as f64 / 1e9).into_object(py)?.into();
    let what: Obj = what.clone().into();
    let told = ffi::call(py, &call, &[&what, &seconds]).map(drop);
    contained(loop_, call.bind(py), told)
}

fn log_if_slow<'py>(
    loop_: &Bound<'py, LoopCore>,
    taken_ns: u64,
    name: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<()> {
    let py = loop_.py();
    let seconds = taken_ns as f64 / 1e9;
    let limit: f64 = loop_.getattr(intern!(py, "slow_callback_duration"))?.extract()?;
    if seconds >= limit {
        // Looked up where asyncio's own loop finds it, so that a replaced logger gets this line
        // too.
        let name = name()?;
        let logger = standard::BASE_EVENTS.get(intern!(py, "logger"))?;
        let words = intern!(py, "Executing %s took %.3f seconds");
        logger.call_method1(intern!(py, "warning"), (words, name, Fallible(seconds)))?;
    }
    Ok(())
}
