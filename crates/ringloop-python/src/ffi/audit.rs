//! The interpreter's audit events: what a program is about to do, told before it does it.
//!
//! Called by `event_loop/outward.rs`, once a process. A hook cannot be taken back, and with one the interpreter makes a
//! tuple of each event's arguments: [`watch`] is called by the first loop that needs it. Events also come while the
//! interpreter starts and ends, and from any thread: nothing but the wanted ones is looked at.
//!
//! Invariants:
//! 1. The hook is called attached (PEP 578), with the event's name as a C string.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

use super::method::guard;

type Hook = unsafe extern "C" fn(*const c_char, *mut ffi::PyObject, *mut c_void) -> c_int;

unsafe extern "C" {
    // Of `cpython/sysmodule.h`; `pyo3` does not have it.
    fn PySys_AddAuditHook(hook: Hook, data: *mut c_void) -> c_int;
}

/// What is done about events.
pub struct Watch {
    /// Whether the calling thread wants to know of an event.
    pub is_wanted: fn(&[u8]) -> bool,
    /// What is done about it; an error keeps the program from doing it.
    pub about: fn(Python<'_>) -> PyResult<()>,
}

/// Have `watch` told of every event from now on; says whether another hook did not refuse that.
pub fn watch(watch: &'static Watch) -> bool {
    static ADDED: OnceLock<bool> = OnceLock::new();
    *ADDED.get_or_init(|| {
        let data = std::ptr::from_ref(watch).cast_mut().cast::<c_void>();
        // SAFETY: the function fits, and what it is given lives for ever.
        unsafe { PySys_AddAuditHook(audited, data) == 0 }
    })
}

/// 0 lets the program go on, -1 has the exception that is set raised instead.
unsafe extern "C" fn audited(
    event: *const c_char,
    _args: *mut ffi::PyObject,
    data: *mut c_void,
) -> c_int {
    // SAFETY: invariant 1.
    let event = unsafe { CStr::from_ptr(event) };
    // SAFETY: `watch` has given it; it lives for ever.
    let watch = unsafe { &*data.cast_const().cast::<Watch>() };
    if !(watch.is_wanted)(event.to_bytes()) {
        return 0;
    }
    guard(-1, |py| (watch.about)(py).map(|()| 0))
}
