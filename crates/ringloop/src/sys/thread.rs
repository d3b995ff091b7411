//! The processors that a thread may run on.
//!
//! Owns: nothing. Called by: the workers of a runtime that are pinned. Never does: start a thread.
//!
//! # Invariants
//! - **T1** The kernel is given the size of the set that its pointer names, a live local.

use super::check;
use std::io;
use std::mem::MaybeUninit;

/// The processors that the calling thread may use, in ascending order.
///
/// Errors: `EINVAL` on a machine with more than 1024 processors.
/// Source: `sched_getaffinity(2)`, cpuset(7).
pub fn allowed_processors() -> io::Result<Vec<usize>> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    let len = size_of::<libc::cpu_set_t>();
    // SAFETY: T1; 0 is the calling thread.
    check(unsafe { libc::sched_getaffinity(0, len, set.as_mut_ptr()) })?;
    // SAFETY: all-zero bytes are a set, and the kernel has written one.
    let set = unsafe { set.assume_init() };
    let processors = 0..len * 8;
    Ok(processors
        // SAFETY: the number is less than the bits of the set.
        .filter(|processor| unsafe { libc::CPU_ISSET(*processor, &set) })
        .collect())
}

/// Let the calling thread run on one processor only.
///
/// Errors: `EINVAL` where the thread may not use it.
/// Source: `sched_setaffinity(2)`.
pub fn pin_to(processor: usize) -> io::Result<()> {
    let len = size_of::<libc::cpu_set_t>();
    if processor >= len * 8 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: all-zero bytes are the empty set.
    let set = unsafe { set.assume_init_mut() };
    // SAFETY: the number is less than the bits of the set.
    unsafe { libc::CPU_SET(processor, set) };
    // SAFETY: T1; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, len, set) })?;
    Ok(())
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
}
