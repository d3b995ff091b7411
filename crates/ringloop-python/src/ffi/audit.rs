//! Audit events of the interpreter, raised before the application's operation.
//!
//! Called by `event_loop/outward.rs`, once per process. A hook cannot be removed, and with one the
//! interpreter builds a tuple of each event's arguments: so [`watch`] is called by the first loop
//! that needs it. Events are also raised while the interpreter starts and ends, and in any thread:
//! all but the wanted ones are ignored.
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
    // From `cpython/sysmodule.h`; `pyo3` does not declare it.
    fn PySys_AddAuditHook(hook: Hook, data: *mut c_void) -> c_int;
}

/// A handler of events.
pub struct Watch {
    /// Whether the calling thread is interested in an event.
    pub is_wanted: fn(&[u8]) -> bool,
    /// Handles it; an error aborts the operation.
    pub about: fn(Python<'_>) -> PyResult<()>,
}

/// Calls `watch` for every event from now on; whether no other hook rejected that.
pub fn watch(watch: &'static Watch) -> bool {
    static ADDED: OnceLock<bool> = OnceLock::new();
    *ADDED.get_or_init(|| {
        let data = std::ptr::from_ref(watch).cast_mut().cast::<c_void>();
        // SAFETY: the signature matches, and `data` is static.
        unsafe { PySys_AddAuditHook(audited, data) == 0 }
    })
}

/// Returns 0 to go on, -1 to raise the exception that is set.
unsafe extern "C" fn audited(
    event: *const c_char,
    _args: *mut ffi::PyObject,
    data: *mut c_void,
) -> c_int {
    // SAFETY: invariant 1.
    let event = unsafe { CStr::from_ptr(event) };
    // SAFETY: a static passed by `watch`.
    let watch = unsafe { &*data.cast_const().cast::<Watch>() };
    if !(watch.is_wanted)(event.to_bytes()) {
        return 0;
    }
    guard(-1, |py| (watch.about)(py).map(|()| 0))
}
