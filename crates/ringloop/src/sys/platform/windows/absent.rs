//! Calls that this system does not have: each fails with `ENOSYS`, as on a Linux that is too old for
//! it. Callers have a second way, or report the error.

use super::super::super::libc::{
    self, EBADF, ENOSYS, c_char, c_int, c_long, c_uint, c_void, fail, iovec, off_t,
};
use super::super::not_linux::mmsghdr;
use super::files::statx;
use crate::sys::fd::RawFd;

/// Linux's number, for the ring's entries.
pub const P_PIDFD: c_uint = 3;
/// Linux's number, for the ring's entries.
pub const SPLICE_F_MOVE: c_uint = 1;
/// Linux's number, for the ring's entries.
pub const SPLICE_F_NONBLOCK: c_uint = 2;
/// What an enabled ring says; none is.
pub const EBADFD: c_int = EBADF;

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
#[derive(Debug)]
#[repr(C)]
#[allow(non_camel_case_types, missing_docs)]
pub struct sock_fprog {
    pub len: u16,
    pub filter: *mut sock_filter,
}

/// Processors: none, as a thread is not pinned here.
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct cpu_set_t;

fn absent() -> c_int {
    fail(ENOSYS)
}

macro_rules! absent {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "(2)` of Linux.")]
        ///
        /// # Safety
        /// None: it touches no argument.
        pub unsafe fn $name($(_: $argument),*) -> $result {
            absent() as $result
        }
    )*};
}

absent! {
    fallocate(c_int, c_int, off_t, off_t) -> c_int;
    fdatasync(c_int) -> c_int;
    fsync(c_int) -> c_int;
    io_uring_enter(c_int, u32, u32, u32, *const c_void, usize) -> c_long;
    io_uring_register(c_int, u32, *mut c_void, u32) -> c_long;
    io_uring_setup(u32, *mut c_void) -> c_long;
    openat_cached(c_int, *const c_char, c_int) -> c_long;
    pipe2(*mut c_int, c_int) -> c_int;
    preadv2(c_int, *const iovec, c_int, off_t, c_int) -> isize;
    pwritev2(c_int, *const iovec, c_int, off_t, c_int) -> isize;
    recvmmsg(c_int, *mut mmsghdr, c_uint, c_int, *mut libc::timespec) -> c_int;
    renameat2(c_int, *const c_char, c_int, *const c_char, c_uint) -> c_long;
    sched_getaffinity(libc::pid_t, usize, *mut cpu_set_t) -> c_int;
    sched_setaffinity(libc::pid_t, usize, *const cpu_set_t) -> c_int;
    sendmmsg(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
    socketpair(c_int, c_int, c_int, *mut c_int) -> c_int;
    splice(c_int, *mut loff_t, c_int, *mut loff_t, usize, c_uint) -> c_long;
    statx(c_int, *const c_char, c_int, c_uint, *mut statx) -> c_int;
    tee(c_int, c_int, usize, c_uint) -> c_long;
}

/// `F_SETPIPE_SZ` of Linux.
pub fn set_pipe_capacity(_: RawFd, _: c_int) -> c_int {
    absent()
}

/// Of no set.
///
/// # Safety
/// None: it touches nothing.
#[allow(non_snake_case)]
pub unsafe fn CPU_SET(_: usize, _: &mut cpu_set_t) {}

/// Of no set.
///
/// # Safety
/// None: it touches nothing.
#[allow(non_snake_case)]
pub unsafe fn CPU_ISSET(_: usize, _: &cpu_set_t) -> bool {
    false
}
