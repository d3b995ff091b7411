//! Native coroutines: objects that a task, or the `await` of another coroutine, drives.
//!
//! Called by: `CPython`, through the slots that [`Definition::coroutine`] installs. `send`, `throw`
//! and `close` are ordinary methods of the type.
//!
//! Invariants:
//! 1. The slots run as members of the type that they were made for, attached, and `am_send` with a
//!    place for the result.

use std::ptr;

use pyo3::exceptions::PyStopIteration;
use pyo3::ffi;
use pyo3::prelude::*;

use super::make::Raise as _;
use super::method::entry_getter;
use super::native_type::{Definition, Payload, This};
use super::object::Obj;

/// What a coroutine did.
pub enum Step {
    /// It waits for this, a future to the task, or None to let others run.
    Suspend(Obj),
    Return(Obj),
}

/// A payload that is the state of a coroutine.
pub trait Coroutine: Payload {
    /// Runs up to the next suspension; `sends_none`: no value is sent to it.
    fn resume(this: This<'_, '_, Self>, sends_none: bool) -> PyResult<Step>;
}

impl<T: Coroutine> Definition<T> {
    /// Makes the type awaitable: `__await__`, `__iter__`, `__next__`, and the slot of `send`.
    pub fn coroutine(&mut self) {
        self.slot(ffi::Py_am_await, ffi::PyObject_SelfIter as *mut _);
        self.slot(ffi::Py_tp_iter, ffi::PyObject_SelfIter as *mut _);
        self.slot(ffi::Py_tp_iternext, next::<T> as *mut _);
        self.slot(ffi::Py_am_send, send::<T> as *mut _);
    }
}

/// `tp_iternext`.
unsafe extern "C" fn next<T: Coroutine>(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: invariant 1.
    unsafe {
        entry_getter::<T, _>(object, ptr::null_mut(), |py, this| {
            match T::resume(this, true)? {
                Step::Suspend(awaited) => Ok(awaited.into_ptr()),
                // Without an exception, the result is None.
                Step::Return(result) if result.bind(py).is_none() => Ok(ptr::null_mut()),
                Step::Return(result) => Err(PyStopIteration::raise_with(result.bind(py))),
            }
        })
    }
}

/// `am_send`.
unsafe extern "C" fn send<T: Coroutine>(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    place: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: compares addresses; `None` is alive.
    let sends_none = value == unsafe { ffi::Py_None() };
    // SAFETY: invariant 1.
    let (result, sent) = unsafe {
        let failed = (ffi::PySendResult::PYGEN_ERROR, ptr::null_mut());
        entry_getter::<T, _>(object, failed, |_py, this| {
            Ok(match T::resume(this, sends_none)? {
                Step::Suspend(awaited) => (ffi::PySendResult::PYGEN_NEXT, awaited.into_ptr()),
                Step::Return(result) => (ffi::PySendResult::PYGEN_RETURN, result.into_ptr()),
            })
        })
    };
    // SAFETY: invariant 1.
    unsafe { place.write(sent) };
    result
}
