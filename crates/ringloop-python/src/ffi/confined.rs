//! A cell that one thread at a time may open, without ever waiting.
//!
//! The loop's state is entered from many places and never across a call into Python, so a cell that is
//! found open means a second thread is inside: a loop used from a wrong thread. That is an answer
//! (`RuntimeError`), not a reason to wait.
//!
//! Invariants:
//! 1. `busy` is set for exactly as long as a reference to the value exists.
//! 2. With the interpreter lock, only attached threads call `with`, and the lock is not released while
//!    a value is open except by the thread that parks, so a plain flag is enough. Without the lock the
//!    flag is swapped atomically.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::{PyErr, Python};

/// A value that is opened for a moment, never across a call into Python.
pub struct Confined<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

/// The value is open in another thread.
#[derive(Debug)]
pub struct Busy;

impl From<Busy> for PyErr {
    #[cold]
    fn from(_: Busy) -> Self {
        PyRuntimeError::new_err(
            "this event loop is in use by another thread; \
             use loop.call_soon_threadsafe() from threads that do not run it",
        )
    }
}

// SAFETY: invariants 1 and 2: there is never more than one reference to the value.
unsafe impl<T> Sync for Confined<T> {}
// SAFETY: the values are Python references and plain data; whoever opens one is attached.
unsafe impl<T> Send for Confined<T> {}

impl<T> Confined<T> {
    /// Close `value` in.
    pub const fn new(value: T) -> Self {
        Self {
            busy: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, for who owns the cell alone.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Open the value for `body`, which must not call into Python, allocate a Python object or drop
    /// the last reference to one.
    #[inline]
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        let was_busy = if cfg!(Py_GIL_DISABLED) {
            self.busy.swap(true, Ordering::Acquire)
        } else {
            let busy = self.busy.load(Ordering::Relaxed);
            self.busy.store(true, Ordering::Relaxed);
            busy
        };
        if was_busy {
            return Err(Busy);
        }
        let _reset = Reset(&self.busy);
        // SAFETY: invariant 1: the flag was clear and is set now.
        Ok(body(unsafe { &mut *self.value.get() }))
    }

    /// Open the value while attached, and run `body` with the interpreter lock released. A thread that
    /// is inside holds that lock, so nobody can be found inside here; who comes meanwhile finds it open.
    pub fn with_detached<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut T) -> R + Send,
    ) -> Result<R, Busy> {
        struct Place<T>(*mut T);
        // SAFETY: `detach` runs its closure on this very thread.
        unsafe impl<T> Send for Place<T> {}

        self.with(|value| {
            let place = Place(std::ptr::from_mut(value));
            py.detach(move || {
                let place = place;
                // SAFETY: invariant 1: the reference of `with`, used by nobody else until it returns.
                body(unsafe { &mut *place.0 })
            })
        })
    }
}

/// Closes the cell, also when the body panics.
struct Reset<'a>(&'a AtomicBool);

impl Drop for Reset<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
