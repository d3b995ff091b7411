//! The calls of other threads.
//!
//! Called by: `event_loop/pulse.rs`, for the profiler and the watchdog. A frame that runs changes
//! under the reader. With the interpreter lock the reader has it, so nothing runs. Without it, the
//! reader stops all threads meanwhile, as `sys._current_frames` does (Python/pystate.c), which then
//! lets them go on before its caller has looked at `f_back`.
//!
//! Invariants:
//! 1. A frame object is alive while a reference to it is held, also once its call has returned: it
//!    then has its own copy of what is read here.
//! 2. While threads are stopped, no object is dropped and no lock is waited for: a destructor may
//!    need a lock that a stopped thread has. All references are dropped after the threads go on.
//! 3. Nothing else runs between two steps of the walk: the collector, which may run where 3.11
//!    allocates a frame object, is off; later versions run it between instructions only.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::make::Raise as _;
use super::object::Obj;
use crate::limits;

/// The code and the current line of each call, from the innermost outwards.
pub type Calls = Vec<(Obj, i32)>;

/// Reads the calls behind each of `frames`, at one moment.
///
/// # Errors
/// `TypeError` for what is no frame; `MemoryError`.
pub fn call_stacks(py: Python<'_>, frames: &[Bound<'_, PyAny>]) -> PyResult<Vec<Calls>> {
    for frame in frames {
        // SAFETY: the object is alive.
        if unsafe { ffi::PyFrame_Check(frame.as_ptr()) } == 0 {
            return Err(PyTypeError::raise("frames of sys._current_frames() are needed"));
        }
    }
    // Outlives `_paused`: invariant 2.
    let mut passed = Vec::new();
    let _paused = Paused::new(py);
    frames.iter().map(|frame| calls(py, frame, &mut passed)).collect()
}

/// Walks from one frame; `passed` gets the frames, to be dropped later.
fn calls(py: Python<'_>, frame: &Bound<'_, PyAny>, passed: &mut Vec<Obj>) -> PyResult<Calls> {
    let mut calls = Vec::new();
    let mut frame = frame.as_ptr().cast::<ffi::PyFrameObject>();
    while calls.len() < limits::STACK_CALLS_MAX {
        // SAFETY: invariant 1: the caller's frame, or the last of `passed`.
        let code = unsafe { ffi::PyFrame_GetCode(frame) };
        // SAFETY: a new reference.
        let code = unsafe { Obj::from_owned_ptr(py, code.cast()) }?;
        // SAFETY: invariant 1.
        let line = unsafe { ffi::PyFrame_GetLineNumber(frame) };
        calls.push((code, line));
        // SAFETY: invariants 1 and 3.
        frame = unsafe { ffi::PyFrame_GetBack(frame) };
        if frame.is_null() {
            break;
        }
        // SAFETY: a new reference.
        passed.push(unsafe { Obj::from_owned_ptr(py, frame.cast()) }?);
    }
    // Without memory for a caller's frame object, the walk has ended early.
    PyErr::take(py).map_or(Ok(calls), Err)
}

#[cfg(Py_GIL_DISABLED)]
unsafe extern "C" {
    /// Exported for the interpreter's own extensions; `_asyncio` calls them for `all_tasks`.
    fn _PyEval_StopTheWorld(interpreter: *mut ffi::PyInterpreterState);
    fn _PyEval_StartTheWorld(interpreter: *mut ffi::PyInterpreterState);
}

/// Keeps other threads, and the collector, from running until dropped.
struct Paused {
    #[cfg(Py_GIL_DISABLED)]
    interpreter: *mut ffi::PyInterpreterState,
    #[cfg(not(Py_3_12))]
    collects: bool,
}

impl Paused {
    #[allow(clippy::unused_self, unused_variables, reason = "the token proves the attachment")]
    fn new(py: Python<'_>) -> Self {
        #[cfg(Py_GIL_DISABLED)]
        let interpreter = {
            // SAFETY: attached.
            let interpreter = unsafe { ffi::PyInterpreterState_Get() };
            // SAFETY: attached, and not stopped by this thread: nothing in between calls Python.
            unsafe { _PyEval_StopTheWorld(interpreter) };
            interpreter
        };
        Self {
            #[cfg(Py_GIL_DISABLED)]
            interpreter,
            #[cfg(not(Py_3_12))]
            // SAFETY: attached.
            collects: unsafe { ffi::PyGC_Disable() } != 0,
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        #[cfg(Py_GIL_DISABLED)]
        // SAFETY: `new` has stopped them, in this thread.
        unsafe {
            _PyEval_StartTheWorld(self.interpreter);
        }
        #[cfg(not(Py_3_12))]
        if self.collects {
            // SAFETY: attached.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}
