//! Forked children of a test. Other tests of the binary must not run meanwhile (`alone`).

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Forks; returns the status with which `child` ended, 0 if it returned.
pub fn forked(child: impl FnOnce()) -> i32 {
    // SAFETY: the child runs on this thread alone, and ends with _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        end_child(child);
    }
    status_of(pid)
}

/// Runs the child's part, and exits.
pub fn end_child(child: impl FnOnce()) -> ! {
    // SAFETY: no pointer is passed. A child that hangs ends by the signal.
    unsafe { libc::alarm(20) };
    let ended = catch_unwind(AssertUnwindSafe(child));
    // SAFETY: no code of the parent runs any more.
    unsafe { libc::_exit(i32::from(ended.is_err())) };
}

/// Waits for a child's end.
pub fn status_of(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: writes to a live local.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}
