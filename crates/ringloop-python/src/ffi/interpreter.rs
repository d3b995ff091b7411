//! Check for the main interpreter.
//!
//! The native types and cached objects belong to the interpreter that first imported the module, so
//! only one is supported: the main interpreter.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::make::Raise as _;

/// Fails in a sub-interpreter, with `CPython`'s message for one with its own lock; the package
/// turns both into advice.
pub fn check_main_interpreter(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: attached, which the token proves.
    let here = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: no preconditions once Python runs.
    let main = unsafe { ffi::PyInterpreterState_Main() };
    if std::ptr::eq(here, main) {
        return Ok(());
    }
    Err(PyImportError::raise("module ringloop._native does not support loading in subinterpreters"))
}
