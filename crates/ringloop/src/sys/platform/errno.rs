//! This thread's errno.

use std::ffi::c_int;

#[cfg(target_os = "linux")]
use libc::__errno_location as location;
#[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
use libc::__error as location;

/// The address of this thread's errno.
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn errno_location() -> *mut c_int {
    // SAFETY: X1: it gives an address.
    unsafe { location() }
}

/// This thread's errno.
#[cfg_attr(target_os = "freebsd", allow(dead_code))]
#[cfg(any(target_vendor = "apple", target_os = "freebsd", test))]
pub fn errno() -> c_int {
    // SAFETY: X1: it gives an address.
    let at = unsafe { errno_location() };
    // SAFETY: X1: this thread's own.
    unsafe { *at }
}

/// Fails a call as the kernel does.
#[cfg(any(target_vendor = "apple", target_os = "freebsd", test))]
pub fn fail(errno: c_int) -> c_int {
    // SAFETY: X1: it gives an address.
    let at = unsafe { errno_location() };
    // SAFETY: X1: this thread's own.
    unsafe { *at = errno };
    -1
}
