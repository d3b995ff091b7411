//! Debug mode: source tracebacks, and checks before scheduling.

use pyo3::prelude::*;

use super::core::LoopCore;
use super::standard;
use crate::ffi::{Fallible, Obj, intern};

/// The caller's stack, as asyncio stores it: it ends at the caller of the native method.
pub fn extract_stack(py: Python<'_>) -> PyResult<Obj> {
    standard::FORMAT_HELPERS.get(intern!(py, "extract_stack"))?.call0().map(Obj::from)
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
