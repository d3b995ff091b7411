//! Resource limits of the process.
//!
//! Owns: nothing. Called by: the refusal messages, the accept back-off and `doctor`. Never does:
//! raising a limit.
//!
//! # Invariants
//! - **L1** `getrlimit` writes one `rlimit` through a pointer to a live local.

use std::mem::MaybeUninit;

/// Read how many descriptors the process may have open (soft `RLIMIT_NOFILE`).
///
/// Units: descriptors; [`u64::MAX`] means no limit.
/// Source: getrlimit(2).
pub fn descriptor_limit() -> u64 {
    soft_limit(libc::RLIMIT_NOFILE)
}

/// Read how much memory the process may lock (soft `RLIMIT_MEMLOCK`).
///
/// Units: bytes; [`u64::MAX`] means no limit.
/// Source: getrlimit(2).
pub fn memlock_limit() -> u64 {
    soft_limit(libc::RLIMIT_MEMLOCK)
}

/// The type of `RLIMIT_*`, on which the C libraries disagree.
#[cfg(target_env = "gnu")]
pub(super) type Resource = libc::__rlimit_resource_t;
/// The type of `RLIMIT_*`, on which the C libraries disagree.
#[cfg(not(target_env = "gnu"))]
pub(super) type Resource = libc::c_int;

fn soft_limit(resource: Resource) -> u64 {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: L1.
    unsafe { libc::getrlimit(resource, limit.as_mut_ptr()) };
    // SAFETY: L1; all-zero bytes are a valid `rlimit` even where the call failed.
    let limit = unsafe { limit.assume_init() };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        u64::MAX
    } else {
        limit.rlim_cur
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/self/limits` is the kernel's own rendering of the same numbers.
    fn by_proc(name: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        match line[name.len()..].split_whitespace().next().unwrap() {
            "unlimited" => u64::MAX,
            number => number.parse().unwrap(),
        }
    }

    #[test]
    fn l1_limits_agree_with_proc() {
        assert_eq!(descriptor_limit(), by_proc("Max open files"));
        assert_eq!(memlock_limit(), by_proc("Max locked memory"));
    }
}
