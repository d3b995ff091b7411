//! Which interpreter we are in.
//!
//! The native types and the objects that are looked up once belong to the interpreter that imported
//! the module first, so there may be only one, and that is the main one: a program's own.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::make::Raise as _;

/// Fail in a sub-interpreter, in the words by which `CPython` itself refuses one with a lock of its own;
/// the package turns both into advice.
pub fn check_main_interpreter(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: attached, which the token proves.
    let here = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: it has no conditions once Python runs.
    let main = unsafe { ffi::PyInterpreterState_Main() };
    if std::ptr::eq(here, main) {
        return Ok(());
    }
    Err(PyImportError::raise(
        "module ringloop._native does not support loading in subinterpreters",
    ))
}
