//! A value for one thread, inside of shared data.
//!
//! Owns: unique numbers of threads. Called by: what a loop shares with other threads (`hub`,
//! `count`, `task`). Never waits; other threads get `None`.
//!
//! # Invariants
//! 1. References to the value exist only on the thread that made it: `get` compares numbers, and
//!    each number is used once in the life of the process.
//! 2. The value may be dropped on another thread, so it is `Send`.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

// A cell without a destructor: readable also while the thread ends.
#[cfg(not(loom))]
thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}
#[cfg(loom)]
loom::thread_local! {
    static NUMBER: Cell<u64> = Cell::new(0);
}

/// The number of the calling thread.
fn here() -> u64 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// A value for the thread that made it.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    owner: u64,
    value: T,
}

// SAFETY: invariant 1: only one thread has references to the value; invariant 2: it may be dropped
// on any.
unsafe impl<T: Send> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// Ties `value` to the calling thread.
    pub fn new(value: T) -> Self {
        Self { owner: here(), value }
    }

    /// The value, on its own thread.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        (self.owner == here()).then_some(&self.value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn invariant_1_only_the_thread_that_made_it_gets_a_reference() {
        let owned = Arc::new(Owned::new(Cell::new(1)));
        let other = Arc::clone(&owned);
        std::thread::spawn(move || assert!(other.get().is_none())).join().expect("no panic");
        owned.get().expect("its own thread").set(2);
        assert_eq!(owned.get().map(Cell::get), Some(2));
    }

    #[test]
    fn invariant_1_no_two_threads_have_one_number() {
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(here)).collect();
        let mut numbers: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        numbers.push(here());
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 5);
    }

    #[test]
    fn invariant_2_value_is_dropped_where_the_last_holder_is() {
        let value = Arc::new(());
        let owned = Owned::new(Arc::clone(&value));
        std::thread::spawn(move || drop(owned)).join().expect("no panic");
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
