//! The monotonic clock.
//!
//! Owns: nothing. Called by: timers, once a turn. Never does: wall-clock time.
//!
//! # Invariants
//! - **C1** `clock_gettime` writes one `timespec` through a pointer to a live local.

use std::mem::MaybeUninit;

/// Read the monotonic clock.
///
/// Shape: the clock that `time.monotonic()` and `std::time::Instant` read (`CLOCK_MONOTONIC`).
/// Units: nanoseconds since boot, suspended time not counted.
/// Errors: none; the clock exists on every kernel.
/// Cost: about 20 ns, without entering the kernel.
/// Source: `clock_gettime(2)`, vdso(7).
pub fn monotonic_ns() -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: C1.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr()) };
    // SAFETY: C1; all-zero bytes are a valid `timespec` even where the call failed.
    let now = unsafe { now.assume_init() };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn c1_clock_agrees_with_std_and_never_goes_back() {
        let (before, std_before) = (monotonic_ns(), Instant::now());
        let mut last = before;
        while std_before.elapsed() < Duration::from_millis(5) {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
        assert!(
            last - before >= 4_900_000,
            "5 ms by Instant, {} ns by us",
            last - before
        );
    }
}
