//! Parks threads that outlive the interpreter.
//!
//! Up to 3.13 `CPython` ends a thread that requests the interpreter lock after finalisation by
//! `pthread_exit(3)`, whose unwinding aborts in a Rust frame. So the first entry of each thread
//! registers a clean-up handler with glibc, which runs before any frame is unwound, and never
//! returns. From 3.14 on `CPython` does the same by itself; other C libraries do not unwind.
//!
//! Called by: every entry from Python that may call back. A thread that ends by itself is not
//! affected.
//!
//! Invariants:
//! 1. A buffer is on the C library's list from [`arm`] until the thread's end, on the heap and
//!    unmoved; it is removed as the last entry: later entries are removed before the thread ends.
//! 2. For the C library, a buffer outside the stack belongs to a frame that has already exited: its
//!    handler is the first thing that unwinding runs (`unwind_stop` of glibc's nptl/unwind.c).

#[cfg(all(glibc, not(Py_3_14)))]
mod glibc {
    use std::cell::{Cell, RefCell};
    use std::ffi::{c_int, c_void};
    use std::ptr;
    use std::thread;
    use std::time::Duration;

    /// `struct _pthread_cleanup_buffer` of pthread.h.
    #[repr(C)]
    struct Buffer {
        routine: Option<unsafe extern "C" fn(*mut c_void)>,
        argument: *mut c_void,
        cancel_type: c_int,
        previous: *mut Buffer,
    }

    unsafe extern "C" {
        fn _pthread_cleanup_push(
            buffer: *mut Buffer,
            routine: unsafe extern "C" fn(*mut c_void),
            argument: *mut c_void,
        );
        fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
        #[cfg_attr(Py_3_13, link_name = "Py_IsFinalizing")]
        fn _Py_IsFinalizing() -> c_int;
    }

    /// Removes the buffer when the thread ends.
    struct Armed(Box<Buffer>);

    impl Drop for Armed {
        fn drop(&mut self) {
            // SAFETY: invariant 1: `arm` pushed it, and it is the last one.
            unsafe { _pthread_cleanup_pop(&raw mut *self.0, 0) };
        }
    }

    thread_local! {
        static IS_ARMED: Cell<bool> = const { Cell::new(false) };
        static ARMED: RefCell<Option<Armed>> = const { RefCell::new(None) };
    }

    /// Parks this thread if it outlives the interpreter.
    #[inline]
    pub fn arm() {
        if !IS_ARMED.get() {
            arm_thread();
        }
    }

    #[cold]
    fn arm_thread() {
        IS_ARMED.set(true);
        let buffer = Box::new(Buffer {
            routine: None,
            argument: ptr::null_mut(),
            cancel_type: 0,
            previous: ptr::null_mut(),
        });
        let mut armed = Armed(buffer);
        // SAFETY: invariant 1: it stays on the heap until `Armed` is dropped.
        unsafe { _pthread_cleanup_push(&raw mut *armed.0, park, ptr::null_mut()) };
        // A thread whose thread-locals are destroyed is about to end.
        let _ = ARMED.try_with(|place| place.borrow_mut().replace(armed));
    }

    /// Runs before the thread is unwound, without the interpreter lock.
    unsafe extern "C" fn park(_argument: *mut c_void) {
        // SAFETY: reads a pointer of the runtime, from any thread.
        while unsafe { _Py_IsFinalizing() } != 0 {
            thread::sleep(Duration::MAX);
        }
    }
}

#[cfg(all(glibc, not(Py_3_14)))]
pub use glibc::arm;

/// No unwinding here.
#[cfg(not(all(glibc, not(Py_3_14))))]
#[inline]
pub const fn arm() {}
