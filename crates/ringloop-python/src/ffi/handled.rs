//! The exception that is being handled: what `sys.exc_info()` says inside of `except`.
//!
//! asyncio calls exception handlers, and `error_received`, inside of `except`. Applications rely on
//! it: `logging.exception()` and `traceback.print_exc()` take the exception from there, and an
//! exception raised meanwhile gets it as its `__context__`.
//!
//! Invariant:
//! 1. The pointer in `Handled` is null or an owned reference.

use std::ptr;

use pyo3::exceptions::PyBaseException;
use pyo3::ffi;
use pyo3::prelude::*;

/// Calls `body` as inside of `except` for `exception`.
#[cold]
pub fn while_handled<R>(exception: &Bound<'_, PyBaseException>, body: impl FnOnce() -> R) -> R {
    let _handled = Handled::new(exception);
    body()
}

/// Puts back what was handled before when dropped.
struct Handled {
    own: *mut ffi::PyObject,
}

impl Handled {
    fn new(exception: &Bound<'_, PyBaseException>) -> Self {
        let found = handled(exception.py());
        // A coroutine has a place of its own, which is empty while its caller's exception is found.
        // SAFETY: attached, as the reference proves; null is none.
        unsafe { ffi::PyErr_SetHandledException(ptr::null_mut()) };
        let of_caller = handled(exception.py());
        // SAFETY: alive, or null; the function takes a reference of its own.
        unsafe { ffi::PyErr_SetHandledException(exception.as_ptr()) };
        // SAFETY: an owned reference, or null.
        unsafe { ffi::Py_XDECREF(of_caller) };
        if found != of_caller {
            return Self { own: found };
        }
        // SAFETY: as above.
        unsafe { ffi::Py_XDECREF(found) };
        Self { own: ptr::null_mut() }
    }
}

impl Drop for Handled {
    fn drop(&mut self) {
        // SAFETY: invariant 1; attached, because `while_handled` borrows an exception.
        unsafe { ffi::PyErr_SetHandledException(self.own) };
        // SAFETY: invariant 1.
        unsafe { ffi::Py_XDECREF(self.own) };
    }
}

/// A new reference, or null for none.
fn handled(_py: Python<'_>) -> *mut ffi::PyObject {
    // SAFETY: attached, as the token proves.
    unsafe { ffi::PyErr_GetHandledException() }
}
