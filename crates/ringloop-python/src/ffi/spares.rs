//! Freed instances of a native type, kept for the next ones.
//!
//! A loop that schedules one callback for each that runs makes and frees handles in turn; to keep a
//! few is a twentieth of the cost of a callback. Without the interpreter lock nothing is kept: threads
//! would contend for the list, and the allocator is each thread's own.
//!
//! Called by: `native_type.rs`, which makes instances, and `lifecycle.rs`, which frees them.
//!
//! Invariants:
//! 1. A spare is the memory of a dead, untracked instance of the list's one type, whose slots are
//!    null, whose payload is dropped, and which has no weak references. It owns no reference to its type.
//! 2. The first slot of a spare, right after the header, links to the next.
//! 3. Only attached threads, and so one at a time, touch the list.

#[cfg(not(Py_GIL_DISABLED))]
pub use with_lock::Spares;
#[cfg(Py_GIL_DISABLED)]
pub use without_lock::Spares;

#[cfg(not(Py_GIL_DISABLED))]
mod with_lock {
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

    use pyo3::ffi;

    /// The list.
    pub struct Spares {
        first: AtomicPtr<ffi::PyObject>,
        count: AtomicUsize,
    }

    impl Spares {
        pub const fn new() -> Self {
            Self { first: AtomicPtr::new(ptr::null_mut()), count: AtomicUsize::new(0) }
        }

        /// A spare, as a new and tracked instance without a payload.
        #[inline]
        pub fn take(&self, class: *mut ffi::PyTypeObject) -> Option<*mut ffi::PyObject> {
            let spare = self.first.load(Relaxed);
            if spare.is_null() {
                return None;
            }
            // SAFETY: invariants 1 and 2.
            let next = unsafe { ptr::replace(link(spare), ptr::null_mut()) };
            self.first.store(next, Relaxed);
            self.count.store(self.count.load(Relaxed) - 1, Relaxed);
            // SAFETY: invariant 1: memory of this type, without references.
            let object = unsafe { ffi::PyObject_Init(spare, class) };
            // SAFETY: untracked, and every reference that a traversal sees is null.
            unsafe { ffi::PyObject_GC_Track(object.cast()) };
            Some(object)
        }

        /// Keeps a dead instance as invariant 1 describes it; false if there are `most` already.
        #[inline]
        pub fn keep(&self, object: *mut ffi::PyObject, most: usize) -> bool {
            let count = self.count.load(Relaxed);
            if count >= most {
                return false;
            }
            self.count.store(count + 1, Relaxed);
            // SAFETY: invariant 1: nothing else refers to the memory.
            unsafe { *link(object) = self.first.load(Relaxed) };
            self.first.store(object, Relaxed);
            true
        }
    }

    fn link(spare: *mut ffi::PyObject) -> *mut *mut ffi::PyObject {
        spare.wrapping_add(1).cast()
    }
}

#[cfg(Py_GIL_DISABLED)]
mod without_lock {
    use pyo3::ffi;

    /// Always empty.
    pub struct Spares;

    impl Spares {
        pub const fn new() -> Self {
            Self
        }

        #[expect(clippy::unused_self, reason = "the other build has a list")]
        pub const fn take(&self, _class: *mut ffi::PyTypeObject) -> Option<*mut ffi::PyObject> {
            None
        }

        #[expect(clippy::unused_self, reason = "the other build has a list")]
        pub const fn keep(&self, _object: *mut ffi::PyObject, _most: usize) -> bool {
            false
        }
    }
}
