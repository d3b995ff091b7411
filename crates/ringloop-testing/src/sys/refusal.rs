//! `epoll_ctl(2)` without memory for a while, on one thread: for tests of what happens then and afterwards.
//!
//! A test binary that says [`refusing_epoll_ctl!`](crate::refusing_epoll_ctl) has an `epoll_ctl` of its
//! own, which stands in front of the C library's.

use std::cell::Cell;
use std::ffi::{c_int, c_long};

pub use libc::epoll_event;

/// A descriptor is added.
pub const ADD: u32 = 1 << libc::EPOLL_CTL_ADD;
/// A registration is removed.
pub const REMOVE: u32 = 1 << libc::EPOLL_CTL_DEL;
/// A registration is changed.
pub const CHANGE: u32 = 1 << libc::EPOLL_CTL_MOD;

thread_local! {
    /// How many more calls fail, and which operations.
    static REFUSED: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Makes the next `count` of these operations fail with `ENOMEM`, on this thread.
pub fn refuse(count: u32, operations: u32) {
    REFUSED.set((count, operations));
}

/// How many of them are still to come.
pub fn refusals_left() -> u32 {
    REFUSED.get().0
}

/// The call.
///
/// # Safety
/// As `epoll_ctl(2)`.
pub unsafe fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let (left, operations) = REFUSED.get();
    if left > 0 && operations >> operation & 1 == 1 {
        REFUSED.set((left - 1, operations));
        // SAFETY: no pointer is passed.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: it points to this thread's `errno`.
        unsafe { *errno = libc::ENOMEM };
        return -1;
    }
    let [set, operation, fd] = [set, operation, fd].map(c_long::from);
    // SAFETY: the caller's.
    let done = unsafe { libc::syscall(libc::SYS_epoll_ctl, set, operation, fd, event) };
    done as c_int
}

/// Defines this binary's `epoll_ctl(2)`; see [`refusal`](crate::sys::refusal).
#[macro_export]
macro_rules! refusing_epoll_ctl {
    () => {
        /// # Safety
        /// As `epoll_ctl(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn epoll_ctl(
            set: i32,
            operation: i32,
            fd: i32,
            event: *mut $crate::sys::refusal::epoll_event,
        ) -> i32 {
            // SAFETY: the caller's.
            unsafe { $crate::sys::refusal::epoll_ctl(set, operation, fd, event) }
        }
    };
}
