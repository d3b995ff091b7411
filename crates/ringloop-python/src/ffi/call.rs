//! Calls into Python without an argument tuple.
//!
//! Invariants:
//! 1. A vectorcall's argument array has one free word before the first argument
//!    (`PY_VECTORCALL_ARGUMENTS_OFFSET`), which a bound method fills with its receiver.
//! 2. The caller's `&Obj`s keep callable and arguments alive for the call.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::object::Obj;

#[inline]
pub fn call_no_args(py: Python<'_>, callable: &Obj) -> PyResult<Obj> {
    // SAFETY: invariant 2.
    let result = unsafe { ffi::PyObject_CallNoArgs(callable.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Obj::from_owned_ptr(py, result) }
}

#[inline]
pub fn call_one(py: Python<'_>, callable: &Obj, argument: &Obj) -> PyResult<Obj> {
    call(py, callable, &[argument])
}

/// Calls with up to [`CALL_ARGUMENTS_MAX`] arguments; more go through a tuple.
#[inline]
pub fn call<const N: usize>(
    py: Python<'_>,
    callable: &Obj,
    arguments: &[&Obj; N],
) -> PyResult<Obj> {
    vectorcall(py, callable.as_ptr(), arguments, ffi::PyObject_Vectorcall)
}

/// Calls the method `name` of the first argument with the others.
#[inline]
pub fn call_method<const N: usize>(
    py: Python<'_>,
    name: &Bound<'_, PyString>,
    arguments: &[&Obj; N],
) -> PyResult<Obj> {
    const { assert!(N >= 1) };
    vectorcall(py, name.as_ptr(), arguments, ffi::PyObject_VectorcallMethod)
}

type Vectorcall = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    usize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

#[inline(always)]
fn vectorcall<const N: usize>(
    py: Python<'_>,
    called: *mut ffi::PyObject,
    arguments: &[&Obj; N],
    function: Vectorcall,
) -> PyResult<Obj> {
    const { assert!(N <= CALL_ARGUMENTS_MAX) };
    let mut array = [std::ptr::null_mut(); CALL_ARGUMENTS_MAX + 1];
    for (place, argument) in array[1..].iter_mut().zip(arguments) {
        *place = argument.as_ptr();
    }
    let (first, count) = (array[1..].as_ptr(), N | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET);
    // SAFETY: invariants 1 and 2; a method's receiver is the first argument.
    let result = unsafe { function(called, first, count, std::ptr::null_mut()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Obj::from_owned_ptr(py, result) }
}

/// The longest argument list that [`call`] supports.
pub const CALL_ARGUMENTS_MAX: usize = 6;

/// Calls with the arguments of a tuple.
pub fn call_tuple(callable: &Obj, arguments: &Bound<'_, PyTuple>) -> PyResult<Obj> {
    callable.bind(arguments.py()).call1(arguments.clone()).map(Obj::from)
}

/// Runs the Python handlers of signals that arrived.
#[inline]
pub fn check_signals(py: Python<'_>) -> PyResult<()> {
    py.check_signals()
}

/// The calling thread, as `threading.get_ident()`; never zero.
#[inline]
#[allow(clippy::cast_lossless)] // 32 bits on Windows, 64 elsewhere
pub fn thread_id() -> u64 {
    // SAFETY: no preconditions.
    (unsafe { ffi::PyThread_get_thread_ident() }) as u64
}
