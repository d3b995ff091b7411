//! One thread at a time inside of an object.
//!
//! The payloads of native types are plain cells. With the interpreter lock, whoever touches one holds
//! it. Without, the object's own lock takes its place: `CPython`'s critical section, which gives way
//! exactly where the interpreter lock would, when its thread detaches. So whatever holds for code
//! between two points where the interpreter lock may be handed over holds here too, and no thread can
//! block another one for ever: a thread that waits, waits detached.
//!
//! Every entry of a native type (`method!`, `property!`, `repr_slot!`, the finaliser) takes it, and so
//! does the turn before it hands an object a completion. Code that comes by a payload in another way
//! (`Native::get`, `instantiate`) takes it by [`locked`], or has an object that no other thread can
//! know yet. Around the callbacks of a protocol it is [`released`]: they take as long as they like, and
//! come back to the object, which costs little only where its lock is free.
//!
//! With the interpreter lock, all of this is nothing.
//!
//! Invariants:
//! 1. A section is begun and ended in turn by the frame of `locked` or `released` that has it on its
//!    stack, and by its own thread.
//! 2. `INNERMOST` is null, or the section of the innermost `locked` that is begun. Between that frame
//!    and a `released` of the same object lies no other open critical section: `CPython`'s own ones end
//!    before its functions return, and a call back from inside of one comes to the object through a
//!    `locked` of its own.

use pyo3::prelude::*;

#[cfg(not(Py_GIL_DISABLED))]
pub use with_lock::{locked, released};
#[cfg(Py_GIL_DISABLED)]
pub use without_lock::{locked, released};

#[cfg(not(Py_GIL_DISABLED))]
mod with_lock {
    use super::{Bound, PyAny};

    /// Run `body` alone with `object`.
    #[inline]
    pub fn locked<R>(_object: &Bound<'_, PyAny>, body: impl FnOnce() -> R) -> R {
        body()
    }

    /// Run `body`, which calls back, and let other threads into `object` meanwhile.
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
            // SAFETY: invariant 1; the object is alive as long as the borrow in the frame.
            unsafe { ffi::PyCriticalSection_Begin(self.raw.as_mut_ptr(), self.object) };
        }

        fn end(&mut self) {
            // SAFETY: invariants 1 and 2: begun, and the last one that was.
            unsafe { ffi::PyCriticalSection_End(self.raw.as_mut_ptr()) };
        }
    }

    thread_local! {
        static INNERMOST: Cell<*mut Section> = const { Cell::new(ptr::null_mut()) };
    }

    /// Run `body` alone with `object`.
    #[inline]
    pub fn locked<R>(object: &Bound<'_, PyAny>, body: impl FnOnce() -> R) -> R {
        struct Held {
            section: *mut Section,
            outer: *mut Section,
        }

        impl Drop for Held {
            fn drop(&mut self) {
                INNERMOST.set(self.outer);
                // SAFETY: the section lives in the frame of `locked`, which this value does not leave.
                unsafe { &mut *self.section }.end();
            }
        }

        let mut section = Section {
            raw: MaybeUninit::zeroed(),
            object: object.as_ptr(),
        };
        section.begin();
        let section = ptr::from_mut(&mut section);
        let outer = INNERMOST.replace(section);
        let _held = Held { section, outer };
        body()
    }

    /// Run `body`, which calls back, and let other threads into `object` meanwhile.
    #[inline]
    pub fn released<R>(object: &Bound<'_, PyAny>, body: impl FnOnce() -> R) -> R {
        struct Released(*mut Section);

        impl Drop for Released {
            fn drop(&mut self) {
                // SAFETY: invariant 2: the frame of the section lies below this one.
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
        // SAFETY: as above; the reference made for the comparison is gone.
        unsafe { &mut *section }.end();
        let _released = Released(section);
        body()
    }
}
