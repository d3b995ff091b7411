//! The monotonic clock.
//!
//! Owns: nothing. Called by: timers, once per turn.
//!
//! # Invariants
//! - **C1** `clock_gettime` writes one `timespec` through a pointer to a live local.

use super::platform;
use crate::sys::libc;
use std::mem::MaybeUninit;

/// Reads the monotonic clock in nanoseconds since boot, without suspended time.
///
/// This is `CLOCK_MONOTONIC`, on Apple's systems `CLOCK_UPTIME_RAW`: the clock of `time.monotonic()` and `std::time::Instant`. Costs about
/// 20 ns, without entering the kernel. See `clock_gettime(2)`, vdso(7).
#[inline]
pub fn monotonic_ns() -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: C1.
    unsafe { libc::clock_gettime(platform::CLOCK_MONOTONIC, now.as_mut_ptr()) };
    // SAFETY: C1; all-zero bytes are a valid `timespec` even if the call failed.
    let now = unsafe { now.assume_init() };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn c1_the_clock_never_goes_back_and_runs_as_fast_as_std() {
        let (outer_start, start, inner_start) = (Instant::now(), monotonic_ns(), Instant::now());
        let mut last = start;
        while inner_start.elapsed() < Duration::from_millis(5) {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
        let (inner_end, end, outer_end) = (Instant::now(), monotonic_ns(), Instant::now());
        let ours = Duration::from_nanos(end - start);
        assert!(ours >= inner_end - inner_start && ours <= outer_end - outer_start);
    }
}
