//! Exclusive access to an object.
//!
//! Payloads of native types are plain cells. With the interpreter lock, a thread that accesses one
//! holds the lock. Without it, the object's own lock takes its place: `CPython`'s critical section,
//! which is suspended exactly where the interpreter lock would be released, when its thread
//! detaches. So code between two such points has the same guarantees, and threads cannot deadlock:
//! a thread that waits, waits detached.
//!
//! Every entry of a native type (`method!`, `property!`, `repr_slot!`, the finaliser) takes it, and
//! so does the turn before it passes a completion to an object. Code that gets a payload in another
//! way (`Native::get`, `instantiate`) takes it by [`locked`], or has an object that no other thread
//! knows yet. Around a protocol's callbacks, the exception handler and the log it is [`released`]:
//! they may take any time, and call back into the object or the running task, whose locks this thread
//! may have. Where an inner section of another object is open, `CPython` finds that out only by
//! waiting a while for itself.
//!
//! With the interpreter lock, all of this compiles to nothing.
//!
//! Invariants:
//! 1. A section is begun and ended alternately by the frame of `locked` or `released` that has it
//!    on its stack, in its own thread.
//! 2. `INNERMOST` is null, or the section of the innermost `locked` that is begun. Between that
//!    frame and a `released` of the same object there is no other open critical section:
//!    `CPython`'s own ones end before its functions return, and a callback from inside one enters
//!    the object through another `locked`.

use pyo3::prelude::*;

#[cfg(not(Py_GIL_DISABLED))]
pub use with_lock::{locked, released};
#[cfg(Py_GIL_DISABLED)]
pub use without_lock::{locked, released};

#[cfg(not(Py_GIL_DISABLED))]
mod with_lock {
    use super::{Bound, PyAny};

    /// Runs `body` with exclusive access to `object`.
    #[inline]
    pub fn locked<R>(_object: &Bound<'_, PyAny>, body: impl FnOnce() -> R) -> R {
        body()
    }

    /// Runs `body`, which calls back, while other threads may enter `object`.
    #[inline]
    pub fn released<R>(_object: &Bound<'_, PyAny>, body: impl FnOnce() -> R) -> R {
        body()
    }
}

#[cfg(Py_GIL_DISABLED)]
mod without_lock {
    use std::cell::Cell;
    use std::mem::MaybeUninit;
    use std::ptr;

    use pyo3::ffi;

    use super::{Bound, PyAny};

    struct Section {
        raw: MaybeUninit<ffi::PyCriticalSection>,
        object: *mut ffi::PyObject,
    }

    impl Section {
        fn begin(&mut self) {
            // SAFETY: invariant 1; the frame's borrow keeps the object alive.
            unsafe { ffi::PyCriticalSection_Begin(self.raw.as_mut_ptr(), self.object) };
        }

        fn end(&mut self) {
            // SAFETY: invariants 1 and 2: begun, and the innermost one.
            unsafe { ffi::PyCriticalSection_End(self.raw.as_mut_ptr()) };
        }
    }

    thread_local! {
        static INNERMOST: Cell<*mut Section> = const { Cell::new(ptr::null_mut()) };
    }

    /// Runs `body` with exclusive access to `object`.
    #[inline]
    pub fn locked<R>(object: &Bound<'_, PyAny>, body: impl FnOnce() -> R) -> R {
        struct Held {
            section: *mut Section,
            outer: *mut Section,
        }

        impl Drop for Held {
            fn drop(&mut self) {
                INNERMOST.set(self.outer);
                // SAFETY: the section is in the frame of `locked`, which outlives this value.
                unsafe { &mut *self.section }.end();
            }
        }

        let mut section = Section { raw: MaybeUninit::zeroed(), object: object.as_ptr() };
        section.begin();
        let section = ptr::from_mut(&mut section);
        let outer = INNERMOST.replace(section);
        let _held = Held { section, outer };
        body()
    }

    /// Runs `body`, which calls back, while other threads may enter `object`.
    #[inline]
    pub fn released<R>(object: &Bound<'_, PyAny>, body: impl FnOnce() -> R) -> R {
        struct Released(*mut Section);

        impl Drop for Released {
            fn drop(&mut self) {
                // SAFETY: invariant 2: the section's frame is below this one.
                unsafe { &mut *self.0 }.begin();
                INNERMOST.set(self.0);
            }
        }

        let section = INNERMOST.get();
        // SAFETY: invariant 2.
        let held =
            unsafe { section.as_ref() }.is_some_and(|section| section.object == object.as_ptr());
        if !held {
            return body();
        }
        INNERMOST.set(ptr::null_mut());
        // SAFETY: as above; the reference for the comparison has ended.
        unsafe { &mut *section }.end();
        let _released = Released(section);
        body()
    }
}
