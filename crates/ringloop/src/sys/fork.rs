//! Detects forks of the process.
//!
//! Owns: the count of forks, and the hook that increments it. Called by: everything that a forked
//! child must not use: engines, drivers, handles that wake loops, children, signal listeners. A
//! clone(2) or vfork(2) that bypasses the C library is not detected; std's `Command` needs neither.
//!
//! # Invariants
//! - **K1** The hook runs in the child, on its only thread, before fork(2) returns there; it makes
//!   only calls that signal-safety(7) allows.

use super::libc;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Number of forks between this process and the one that called first.
pub fn count() -> u32 {
    Generation::current().0
}

/// The process that a value was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// This process.
    ///
    /// Without memory for the hook, forks are not detected. See `pthread_atfork(3)`.
    pub fn current() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            // SAFETY: K1.
            unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// True in a forked child of that process.
    #[inline]
    pub fn is_inherited(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}

/// Runs in the child.
extern "C" fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::in_child;

    #[test]
    fn k1_what_was_made_before_a_fork_is_inherited_in_the_child_alone() {
        let before = Generation::current();
        assert!(in_child(|| before.is_inherited() && !Generation::current().is_inherited()));
        assert!(!before.is_inherited());
    }
}
