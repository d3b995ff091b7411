//! A cell that one thread at a time may open for a short time.
//!
//! The loop's state is entered from many places and never across a call into Python, so a cell that
//! is already open means that a second thread uses the loop. With the interpreter lock that can
//! only happen while the loop thread is parked, which is not waited for: the result is
//! `RuntimeError`. Without the lock the other thread may be anywhere inside; it exits after a few
//! instructions, and waiting for that gives concurrent callers the same chances as with the lock.
//!
//! Invariants:
//! 1. The state is not `FREE` for exactly as long as a reference to the value exists.
//! 2. With the interpreter lock, only attached threads call `with`, and the lock is not released while
//!    a value is open except by the thread that parks, so plain loads and stores are enough. Without
//!    the lock the state is exchanged atomically.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::{PyErr, Python};

use super::make::Raise as _;
use super::object::Visited;
#[cfg(Py_GIL_DISABLED)]
use crate::limits;

/// No thread is inside.
const FREE: u8 = 0;
/// A thread is inside for a short time.
const OPEN: u8 = 1;
/// A thread is inside and detached, for any length of time.
const LENT: u8 = 2;

/// A value that is opened briefly, never across a call into Python.
#[derive(Default)]
pub struct Confined<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

/// The value is open in another thread.
#[derive(Debug)]
pub struct Busy;

impl From<Busy> for PyErr {
    #[cold]
    fn from(_: Busy) -> Self {
        PyRuntimeError::raise(
            "this event loop is in use by another thread; \
             use loop.call_soon_threadsafe() from threads that do not run it",
        )
    }
}

// SAFETY: invariants 1 and 2: there is never more than one reference to the value.
unsafe impl<T> Sync for Confined<T> {}
// SAFETY: the values are Python references and plain data, and a thread that opens one is attached.
unsafe impl<T> Send for Confined<T> {}

impl<T> Confined<T> {
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU8::new(FREE), value: UnsafeCell::new(value) }
    }

    /// The value, through exclusive access to the cell.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Opens the value for `body`, which must not call into Python, allocate a Python object, or
    /// drop the last reference to one.
    #[inline]
    pub fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        if !self.enter() && !self.enter_after_another() {
            return Err(Busy);
        }
        Ok(self.opened(body))
    }

    /// Whether a thread is inside and detached.
    #[inline]
    pub fn is_lent(&self) -> bool {
        self.state.load(Ordering::Relaxed) == LENT
    }

    /// As [`Confined::with`]; returns `body` if the cell is in use.
    #[inline]
    pub fn try_with<R, F: FnOnce(&mut T) -> R>(&self, body: F) -> Result<R, F> {
        if !self.enter() && !self.enter_after_another() {
            return Err(body);
        }
        Ok(self.opened(body))
    }

    /// Shows the value's references to the collector, unless a thread is inside: then it is no garbage.
    pub fn visit(&self, show: impl FnOnce(&mut T) -> Visited) -> Visited {
        if !self.enter() {
            return Visited::Continue(());
        }
        self.opened(show)
    }

    /// Opens the value while attached, and runs `body` detached. Other threads find the cell open
    /// and do not wait.
    pub fn with_detached<R: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut T) -> R + Send,
    ) -> Result<R, Busy> {
        struct Place<T>(*mut T);
        // SAFETY: `detach` runs its closure on this thread.
        unsafe impl<T> Send for Place<T> {}

        self.with(|value| {
            self.state.store(LENT, Ordering::Relaxed);
            let place = Place(std::ptr::from_mut(value));
            py.detach(move || {
                let place = place;
                // SAFETY: invariant 1: the reference of `with`, which is not used until `body`
                // returns.
                body(unsafe { &mut *place.0 })
            })
        })
    }

    #[inline]
    fn opened<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        let _reset = Reset(&self.state);
        // SAFETY: invariant 1: the state was `FREE` and is not any more.
        body(unsafe { &mut *self.value.get() })
    }

    #[inline]
    fn enter(&self) -> bool {
        if cfg!(Py_GIL_DISABLED) {
            return self
                .state
                .compare_exchange(FREE, OPEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        }
        let was_free = self.state.load(Ordering::Relaxed) == FREE;
        if was_free {
            self.state.store(OPEN, Ordering::Relaxed);
        }
        was_free
    }

    #[cfg(not(Py_GIL_DISABLED))]
    #[expect(clippy::unused_self, reason = "the other build waits")]
    fn enter_after_another(&self) -> bool {
        false
    }

    /// Waits until another thread has left the cell, while attached: the holder does not need the
    /// interpreter to exit, so it takes a few instructions unless the holder is preempted.
    #[cfg(Py_GIL_DISABLED)]
    #[cold]
    fn enter_after_another(&self) -> bool {
        let end = std::time::Instant::now() + limits::CELL_WAIT_MAX;
        while self.state.load(Ordering::Relaxed) != LENT && std::time::Instant::now() < end {
            for _ in 0..limits::CELL_SPINS {
                if self.enter() {
                    return true;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
        false
    }
}

/// Closes the cell, even if the body panics.
struct Reset<'a>(&'a AtomicU8);

impl Drop for Reset<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Release);
    }
}
