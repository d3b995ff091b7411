//! The crate's atomics and locks: std's, or loom's when its model checker runs.
//!
//! Owns: the choice between the two. Called by: every file whose state threads share. `Mutex` is
//! for code that loom checks; other code locks std's with [`locked`].

#[cfg(loom)]
pub(crate) use loom::sync::Mutex;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

use std::sync::{MutexGuard, PoisonError};

/// Locks a state that is consistent at any point: a panic elsewhere does not change that.
pub(crate) fn locked<T>(mutex: &std::sync::Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
