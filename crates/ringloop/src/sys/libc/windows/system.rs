//! Memory, the clock, and what a process has of POSIX here.

use super::constants::{EINVAL, ENOMEM, ENOSYS, MAP_ANONYMOUS, RLIM_INFINITY};
use super::fail;
use super::types::{c_char, c_int, c_long, c_void, clockid_t, off_t, rlimit, sigset_t, timespec};
use std::ptr;
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc, VirtualFree,
};
use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};

/// What [`mmap`] returns for an error.
pub const MAP_FAILED: *mut c_void = !0_usize as *mut c_void;

/// mmap(2) of private memory.
///
/// # Safety
/// As of mmap(2).
pub unsafe fn mmap(
    _: *mut c_void,
    len: usize,
    _: c_int,
    flags: c_int,
    _: c_int,
    _: off_t,
) -> *mut c_void {
    if flags & MAP_ANONYMOUS == 0 || len == 0 {
        fail(if len == 0 { EINVAL } else { ENOSYS });
        return MAP_FAILED;
    }
    let kind = MEM_RESERVE | MEM_COMMIT;
    // SAFETY: the system picks a range that nothing uses.
    let base = unsafe { VirtualAlloc(ptr::null(), len, kind, PAGE_READWRITE) };
    if base.is_null() {
        fail(ENOMEM);
        return MAP_FAILED;
    }
    base
}

/// munmap(2) of a whole mapping.
///
/// # Safety
/// `base` is from [`mmap`], and nothing uses it.
pub unsafe fn munmap(base: *mut c_void, _: usize) -> c_int {
    // SAFETY: by this function's contract.
    if unsafe { VirtualFree(base, 0, MEM_RELEASE) } == 0 { -1 } else { 0 }
}

/// `clock_gettime(2)` of the monotonic clock: that of Rust's `Instant` and Python's `time.monotonic()`.
///
/// # Safety
/// `into` is room for one.
pub unsafe fn clock_gettime(_: clockid_t, into: *mut timespec) -> c_int {
    let (mut ticks, mut per_second) = (0_i64, 0_i64);
    // SAFETY: the value is live for the call, which cannot fail.
    unsafe { QueryPerformanceCounter(&raw mut ticks) };
    // SAFETY: as above; the frequency is fixed at boot.
    unsafe { QueryPerformanceFrequency(&raw mut per_second) };
    let per_second = per_second.max(1);
    let nanoseconds = (ticks % per_second) * 1_000_000_000 / per_second;
    // SAFETY: X2.
    unsafe { into.write(timespec { tv_sec: ticks / per_second, tv_nsec: nanoseconds as c_long }) };
    0
}

/// getrlimit(2): there is no such limit.
///
/// # Safety
/// `into` is room for one.
pub unsafe fn getrlimit(_: c_int, into: *mut rlimit) -> c_int {
    // SAFETY: X2.
    unsafe { into.write(rlimit { rlim_cur: RLIM_INFINITY, rlim_max: RLIM_INFINITY }) };
    0
}

/// `pthread_atfork(3)`: there is no fork.
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn pthread_atfork(
    _: Option<unsafe extern "C" fn()>,
    _: Option<unsafe extern "C" fn()>,
    _: Option<unsafe extern "C" fn()>,
) -> c_int {
    0
}

/// dlopen(3): none is found.
///
/// # Safety
/// None: it touches no argument.
pub unsafe fn dlopen(_: *const c_char, _: c_int) -> *mut c_void {
    ptr::null_mut()
}

/// dlsym(3): none is found.
///
/// # Safety
/// None: it touches no argument.
pub unsafe fn dlsym(_: *mut c_void, _: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

/// sigfillset(3): signals are not delivered to threads.
///
/// # Safety
/// As of sigfillset(3).
pub unsafe fn sigfillset(_: *mut sigset_t) -> c_int {
    0
}

/// `pthread_sigmask(3)`: as [`sigfillset`].
///
/// # Safety
/// As of `pthread_sigmask(3)`.
pub unsafe fn pthread_sigmask(_: c_int, _: *const sigset_t, _: *mut sigset_t) -> c_int {
    0
}
