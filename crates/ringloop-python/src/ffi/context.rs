//! Contexts (`contextvars`), and whether the current one is empty.
//!
//! Most callbacks are scheduled while no context variable is set. Then there is nothing to copy,
//! and a handle needs no context until it runs. `CPython` has no function to ask; the current
//! context is a field of the thread state, whose offset [`calibrate`] finds by experiment. If the
//! result is ambiguous, every context counts as not empty.
//!
//! Invariants:
//! 1. `CONTEXT_WORD` is zero (unknown), or the index of the `PyThreadState` word that holds the
//!    current context or null, as confirmed with two contexts.
//! 2. A thread state has at least [`WORDS_MAX`] words (352 bytes and more since 3.11), and only its
//!    own thread writes the context's word.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::ffi;
use pyo3::prelude::*;

use super::object::Obj;

const WORDS_MAX: usize = 40;

static CONTEXT_WORD: AtomicUsize = AtomicUsize::new(0);

/// Finds the offset of the current context in a thread state.
pub fn calibrate(py: Python<'_>) -> PyResult<()> {
    let (first, second) = (context_new(py)?, context_new(py)?);
    let (found, again) = (words_of(py, &first)?, words_of(py, &second)?);
    if let ([word], true) = (found.as_slice(), found == again) {
        CONTEXT_WORD.store(*word, Relaxed);
    }
    Ok(())
}

/// The words that hold `context` while it is entered, and not after it is exited.
fn words_of(py: Python<'_>, context: &Obj) -> PyResult<Vec<usize>> {
    let holds = |&word: &usize| thread_state_word(py, word) == context.as_ptr() as usize;
    context_enter(py, context)?;
    let inside = (1..WORDS_MAX).filter(holds).collect::<Vec<_>>();
    context_exit(py, context)?;
    Ok(inside.into_iter().filter(|word| !holds(word)).collect())
}

#[inline]
fn thread_state_word(_py: Python<'_>, word: usize) -> usize {
    // SAFETY: attached, as the token proves.
    let state = unsafe { ffi::PyThreadState_Get() }.cast::<AtomicUsize>();
    debug_assert!(word < WORDS_MAX);
    // SAFETY: invariant 2: inside the thread state.
    let place = unsafe { state.add(word) };
    // SAFETY: as above, aligned; an atomic load because `calibrate` also reads other fields.
    unsafe { &*place }.load(Relaxed)
}

/// Whether the current context is known to be empty.
#[inline]
pub fn current_context_is_empty(py: Python<'_>) -> bool {
    let word = CONTEXT_WORD.load(Relaxed);
    if word == 0 {
        return false;
    }
    let context = thread_state_word(py, word) as *mut ffi::PyObject;
    // SAFETY: invariant 1: null, or the current context, which its thread keeps alive.
    context.is_null() || unsafe { ffi::PyObject_Size(context) } == 0
}

/// Whether `context` is known to be the current one.
#[inline]
pub fn context_is_current(py: Python<'_>, context: &Obj) -> bool {
    let word = CONTEXT_WORD.load(Relaxed);
    word != 0 && thread_state_word(py, word) == context.as_ptr() as usize
}

/// Whether `object` is a `contextvars.Context`; there are no subclasses.
#[inline]
pub fn is_context(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: alive.
    unsafe { ffi::PyContext_CheckExact(object.as_ptr()) != 0 }
}

/// Whether `context` has `references` references only, and no variable set.
#[inline]
pub fn context_is_fresh(_py: Python<'_>, context: &Obj, references: ffi::Py_ssize_t) -> bool {
    // SAFETY: alive, and attached, as the token proves.
    let count = unsafe { ffi::Py_REFCNT(context.as_ptr()) };
    // SAFETY: alive; the length of a context cannot fail.
    count == references && unsafe { ffi::PyObject_Size(context.as_ptr()) } == 0
}

/// Whether `object` is unreachable from elsewhere, except through the garbage collector.
#[cfg(not(Py_GIL_DISABLED))]
#[inline]
pub fn is_unique(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: alive.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) == 1 }
}

/// Whether `object` is unreachable from elsewhere. A count of one is not enough: other threads may
/// have local counts.
#[cfg(Py_GIL_DISABLED)]
#[inline]
pub fn is_unique(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: alive, and attached, as the token proves.
    unsafe { ffi::PyUnstable_Object_IsUniquelyReferenced(object.as_ptr()) == 1 }
}

pub fn context_new(py: Python<'_>) -> PyResult<Obj> {
    // SAFETY: attached, as the token proves.
    let context = unsafe { ffi::PyContext_New() };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Obj::from_owned_ptr(py, context) }
}

/// Copies the current context, as `contextvars.copy_context()`.
#[inline]
pub fn context_copy_current(py: Python<'_>) -> PyResult<Obj> {
    // SAFETY: attached, as the token proves.
    let context = unsafe { ffi::PyContext_CopyCurrent() };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Obj::from_owned_ptr(py, context) }
}

/// Copies a context; fails for other objects.
#[inline]
pub fn context_copy(py: Python<'_>, context: &Obj) -> PyResult<Obj> {
    // SAFETY: alive, and the function checks the type itself.
    let copy = unsafe { ffi::PyContext_Copy(context.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Obj::from_owned_ptr(py, copy) }
}

/// Enters `context`; fails if it is already entered, or not a context.
#[inline]
pub fn context_enter(py: Python<'_>, context: &Obj) -> PyResult<()> {
    // SAFETY: alive, and the function checks type and state itself.
    if unsafe { ffi::PyContext_Enter(context.as_ptr()) } < 0 {
        return Err(PyErr::fetch(py));
    }
    Ok(())
}

#[inline]
pub fn context_exit(py: Python<'_>, context: &Obj) -> PyResult<()> {
    // SAFETY: alive, and the function checks that it is the current one.
    if unsafe { ffi::PyContext_Exit(context.as_ptr()) } < 0 {
        return Err(PyErr::fetch(py));
    }
    Ok(())
}
