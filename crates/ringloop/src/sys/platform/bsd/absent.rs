//! Calls that this system does not have: each fails with `ENOSYS`, as on a Linux that is too old for
//! it. Callers have a second way, or report the error.

use super::super::errno::fail;
use super::super::not_linux::mmsghdr;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::RawFd;

/// Linux's number, for the ring's entries.
pub const P_PIDFD: c_uint = 3;
/// Linux's number, for the ring's entries.
pub const SPLICE_F_MOVE: c_uint = 1;
/// Linux's number, for the ring's entries.
pub const SPLICE_F_NONBLOCK: c_uint = 2;
/// What an enabled ring says; none is.
pub const EBADFD: c_int = libc::EBADF;

/// An offset of [`splice`].
#[allow(non_camel_case_types)]
pub type loff_t = i64;

/// A step of a packet filter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, missing_docs)]
pub struct sock_filter {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// A packet filter.
#[repr(C)]
#[allow(non_camel_case_types, missing_docs)]
pub struct sock_fprog {
    pub len: u16,
    pub filter: *mut sock_filter,
}

/// Processors: none, as a thread cannot be pinned here.
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct cpu_set_t;

fn absent() -> c_int {
    fail(libc::ENOSYS)
}

macro_rules! absent {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "(2)` of Linux.")]
        ///
        /// # Safety
        /// None: it touches no argument.
        pub unsafe fn $name($(_: $argument),*) -> $result {
            absent().into()
        }
    )*};
}

absent! {
    fallocate(c_int, c_int, libc::off_t, libc::off_t) -> c_int;
    io_uring_enter(c_int, u32, u32, u32, *const c_void, usize) -> c_long;
    io_uring_register(c_int, u32, *mut c_void, u32) -> c_long;
    io_uring_setup(u32, *mut c_void) -> c_long;
    openat_cached(c_int, *const c_char, c_int) -> c_long;
    recvmmsg(c_int, *mut mmsghdr, c_uint, c_int, *mut libc::timespec) -> c_int;
    sched_getaffinity(libc::pid_t, usize, *mut cpu_set_t) -> c_int;
    sched_setaffinity(libc::pid_t, usize, *const cpu_set_t) -> c_int;
    sendmmsg(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
    splice(c_int, *mut loff_t, c_int, *mut loff_t, usize, c_uint) -> c_long;
    tee(c_int, c_int, usize, c_uint) -> c_long;
}

/// `F_SETPIPE_SZ` of Linux.
pub fn set_pipe_capacity(_: RawFd, _: c_int) -> c_int {
    absent()
}

/// The calling thread's number, for a ring; there is none.
pub fn gettid() -> libc::pid_t {
    0
}

/// False: see [`cpu_set_t`].
///
/// # Safety
/// None; it is a function of C.
#[allow(non_snake_case)]
pub unsafe fn CPU_ISSET(_: usize, _: &cpu_set_t) -> bool {
    false
}

/// Does nothing: see [`cpu_set_t`].
///
/// # Safety
/// None; it is a function of C.
#[allow(non_snake_case)]
pub unsafe fn CPU_SET(_: usize, _: &mut cpu_set_t) {}
