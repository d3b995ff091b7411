//! The calling thread: its CPUs, its signal mask.
//!
//! Owns: nothing. Called by: the pinned workers of a runtime, the threads of its blocking pool.
//!
//! # Invariants
//! - **T1** The kernel is given the size of the set that its pointer names, a live local.
//! - **T2** A signal set handed to the kernel is a live local that `sigfillset` has filled.

use super::check;
use super::platform;
use crate::sys::libc;
use std::io;
use std::mem::MaybeUninit;

/// The CPUs that the calling thread may use, in ascending order. See `sched_getaffinity(2)`,
/// cpuset(7).
///
/// # Errors
/// `EINVAL` on a machine with more than 1024 CPUs.
pub fn allowed_processors() -> io::Result<Vec<usize>> {
    let mut set = MaybeUninit::<platform::cpu_set_t>::zeroed();
    let len = size_of::<platform::cpu_set_t>();
    // SAFETY: T1; 0 is the calling thread.
    check(unsafe { platform::sched_getaffinity(0, len, set.as_mut_ptr()) })?;
    // SAFETY: all-zero bytes are a set, and the kernel has written one.
    let set = unsafe { set.assume_init() };
    let processors = 0..len * 8;
    Ok(processors
        // SAFETY: the number is less than the bits of the set.
        .filter(|processor| unsafe { platform::CPU_ISSET(*processor, &set) })
        .collect())
}

/// Pins the calling thread to one CPU. See `sched_setaffinity(2)`.
///
/// # Errors
/// `EINVAL` if the thread may not use it.
pub fn pin_to(processor: usize) -> io::Result<()> {
    let len = size_of::<platform::cpu_set_t>();
    if processor >= len * 8 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = MaybeUninit::<platform::cpu_set_t>::zeroed();
    // SAFETY: all-zero bytes are the empty set.
    let set = unsafe { set.assume_init_mut() };
    // SAFETY: the number is less than the bits of the set.
    unsafe { platform::CPU_SET(processor, set) };
    // SAFETY: T1; 0 is the calling thread.
    check(unsafe { platform::sched_setaffinity(0, len, set) })?;
    Ok(())
}

/// Blocks all signals on this thread: their handlers run on the application's threads. See
/// `pthread_sigmask(3)`.
///
/// # Errors
/// None are known.
pub fn block_signals() -> io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: T2.
    check(unsafe { libc::sigfillset(all.as_mut_ptr()) })?;
    // SAFETY: T2.
    let errno =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut()) };
    match errno {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_a_pinned_thread_may_use_one_processor_and_its_parent_all() {
        let all = allowed_processors().unwrap();
        let last = *all.last().unwrap();
        let pinned = std::thread::spawn(move || {
            pin_to(last).unwrap();
            allowed_processors().unwrap()
        });
        assert_eq!(pinned.join().unwrap(), [last]);
        assert_eq!(allowed_processors().unwrap(), all);
    }

    #[test]
    fn a_processor_that_does_not_exist_is_refused() {
        for processor in [1023, 1024, usize::MAX] {
            let refused = std::thread::spawn(move || pin_to(processor).is_err());
            assert!(refused.join().unwrap(), "{processor}");
        }
    }

    #[test]
    fn t2_every_signal_is_blocked_afterwards_and_on_this_thread_only() {
        fn is_blocked(signal: i32) -> bool {
            let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
            let now = std::ptr::null();
            // SAFETY: T2; a null set reads the current mask.
            let read = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, now, mask.as_mut_ptr()) };
            assert_eq!(read, 0);
            // SAFETY: filled by the call above.
            unsafe { libc::sigismember(mask.as_ptr(), signal) == 1 }
        }
        std::thread::spawn(|| {
            block_signals().unwrap();
            assert!(is_blocked(libc::SIGINT) && is_blocked(libc::SIGCHLD));
        })
        .join()
        .unwrap();
        assert!(!is_blocked(libc::SIGUSR2));
    }
}
