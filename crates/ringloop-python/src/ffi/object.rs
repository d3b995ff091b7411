//! Owned references, and cells of them, without `PyO3`'s bookkeeping.
//!
//! `Py<T>` checks a thread-local on every clone and drop to see whether `PyO3` considers the thread
//! attached. Our trampolines do not maintain that count, and handles are dropped millions of times
//! a second, so [`Obj`] decrements directly.
//!
//! Invariants:
//! 1. An `Obj` owns one reference, and is made, cloned and dropped only by attached threads. It
//!    must not be stored where a detached thread could drop it.
//! 2. The content of an `ObjCell` is never borrowed out: it is moved or cloned.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;

use pyo3::ffi;
use pyo3::prelude::*;

/// One owned reference to a Python object.
#[repr(transparent)]
pub struct Obj(ManuallyDrop<Py<PyAny>>);

impl Obj {
    /// Takes ownership of a new reference.
    ///
    /// # Safety
    /// `pointer` is a new (owned) reference or null with an exception set.
    pub unsafe fn from_owned_ptr(py: Python<'_>, pointer: *mut ffi::PyObject) -> PyResult<Self> {
        // SAFETY: the caller's contract is the one of this function.
        unsafe { Bound::from_owned_ptr_or_err(py, pointer) }.map(Self::from)
    }

    /// Borrow as a bound object.
    pub fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }

    #[inline]
    pub fn clone_ref(&self, _py: Python<'_>) -> Self {
        let pointer = self.0.as_ptr();
        // SAFETY: invariant 1: the pointer is alive, and the token proves that we are attached.
        unsafe { ffi::Py_INCREF(pointer) };
        // SAFETY: the new value owns the reference made above.
        Self(ManuallyDrop::new(unsafe { std::ptr::from_ref(&*self.0).read() }))
    }

    /// The address, for identity and for calls that borrow.
    #[inline]
    pub fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    /// Converts into a raw pointer with the reference.
    #[inline]
    pub fn into_ptr(self) -> *mut ffi::PyObject {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// Converts into a bound object.
    pub fn into_bound(self, py: Python<'_>) -> Bound<'_, PyAny> {
        // SAFETY: transfers the owned reference.
        unsafe { Bound::from_owned_ptr(py, self.into_ptr()) }
    }

    /// Takes a new reference to a borrowed object.
    #[inline]
    pub fn from_borrowed(object: Borrowed<'_, '_, PyAny>) -> Self {
        Self::from(object.to_owned())
    }

    /// The reference as `PyO3`'s own type, for `PyVisit`.
    pub fn as_py(&self) -> &Py<PyAny> {
        &self.0
    }
}

impl<T> From<Bound<'_, T>> for Obj {
    #[inline]
    fn from(object: Bound<'_, T>) -> Self {
        Self(ManuallyDrop::new(object.into_any().unbind()))
    }
}

impl Drop for Obj {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: invariant 1: our reference, and the thread is attached.
        unsafe { ffi::Py_DECREF(self.0.as_ptr()) };
    }
}

/// Result of a visit; `Break` carries the collector's own result.
pub type Visited = ControlFlow<i32>;

/// Receives the references that an object holds, for the garbage collector.
pub trait Visitor {
    fn visit(&mut self, object: &Obj) -> Visited;
}

/// A cell that holds one reference or none.
#[derive(Default)]
#[repr(transparent)]
pub struct ObjCell(Cell<Option<Obj>>);

impl ObjCell {
    pub const fn new(object: Option<Obj>) -> Self {
        Self(Cell::new(object))
    }

    #[inline]
    pub fn take(&self) -> Option<Obj> {
        self.0.take()
    }

    pub fn clear(&self) {
        drop(self.take());
    }

    /// Replaces the content and returns the old one, so that its drop is visible at the call.
    #[inline]
    pub fn replace(&self, object: Option<Obj>) -> Option<Obj> {
        self.0.replace(object)
    }

    #[inline]
    pub fn is_some(&self) -> bool {
        self.peek().is_some()
    }

    /// Whether it holds this object.
    #[inline]
    pub fn is(&self, object: &Obj) -> bool {
        self.peek().is_some_and(|held| held.as_ptr() == object.as_ptr())
    }

    /// Makes another reference to the content.
    #[inline]
    pub fn get(&self, py: Python<'_>) -> Option<Obj> {
        self.peek().map(|object| object.clone_ref(py))
    }

    /// The content as a bound object, or None.
    pub fn get_or_none<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self.get(py) {
            Some(object) => object.into_bound(py),
            None => py.None().into_bound(py),
        }
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.peek().map_or(Visited::Continue(()), |object| visitor.visit(object))
    }

    /// Borrows the content; `body` must not access the cell again.
    #[inline]
    pub(super) fn with<R>(&self, body: impl FnOnce(Option<&Obj>) -> R) -> R {
        body(self.peek())
    }

    fn peek(&self) -> Option<&Obj> {
        // SAFETY: invariant 2: the callers above use the borrow only to compare, to increment the
        // count, or to show the pointer to the collector; none of these can write this cell.
        unsafe { (*self.0.as_ptr()).as_ref() }
    }
}
