//! A reference count that its owner's thread changes without atomics.
//!
//! Owns: the two halves of the count. Called by: `task` (wakers of a task, tasks of a loop). It
//! frees nothing itself, but says which caller has to.
//!
//! ```text
//!   open:    count = here (a plain number, the owner's thread) + away (an atomic, all others)
//!              │     neither half means anything alone: a reference made here may be dropped there
//!            close (the owner's thread, once)
//!              ▼
//!   closed:  count = away, on every thread; the drop that brings it to 0 frees
//! ```
//! While the count is open its owner holds a reference, so no drop has to check for 0. Checked by loom
//! below.

use crate::executor::sync::{AtomicI32, Ordering};
use std::cell::Cell;

/// Most that the owner keeps in its own half before the rest is moved to the other one: references
/// that are always made here and dropped there must not overflow either half.
const HERE_MAX: i32 = 1 << 28;

/// More references than this abort the process, as in `Arc`: they are being leaked.
const COUNT_MAX: i32 = 1 << 29;

/// Set in `away` once the count is closed; above any count.
const CLOSED: i32 = 1 << 30;

/// The owner's half once the count is closed; no sum of references.
const CLOSED_HERE: i32 = i32::MIN;

/// A reference count that its own thread changes without atomics. This is the other threads' half;
/// the owner keeps its half in its own memory, 0 at first.
#[derive(Debug)]
pub(crate) struct SplitCount {
    away: AtomicI32,
}

impl SplitCount {
    /// A count without references.
    pub fn new() -> Self {
        Self { away: AtomicI32::new(0) }
    }

    /// Adds a reference; `here` is the owner's half, on its own thread.
    #[inline]
    pub fn add(&self, here: Option<&Cell<i32>>) {
        if let Some(here) = here.filter(|here| here.get() != CLOSED_HERE) {
            self.change(here, 1);
        } else {
            let count = self.away.fetch_add(1, Ordering::Relaxed);
            if (COUNT_MAX..CLOSED).contains(&count) || count >= i32::MAX - HERE_MAX {
                std::process::abort();
            }
        }
    }

    /// Drops a reference; returns true if it was the last of a closed count.
    #[inline]
    pub fn sub(&self, here: Option<&Cell<i32>>) -> bool {
        match here.filter(|here| here.get() != CLOSED_HERE) {
            Some(here) => {
                self.change(here, -1);
                false
            }
            None => self.away.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1,
        }
    }

    #[inline]
    fn change(&self, here: &Cell<i32>, by: i32) {
        let count = here.get() + by;
        here.set(count);
        if count.abs() >= HERE_MAX {
            self.move_over(here);
        }
    }

    /// Moves the owner's half over; the sum does not change.
    #[cold]
    fn move_over(&self, here: &Cell<i32>) {
        let away = self.away.fetch_add(here.take(), Ordering::Relaxed);
        if away >= COUNT_MAX {
            std::process::abort();
        }
    }

    /// The owner drops its reference. Returns true if no references are left; otherwise the last
    /// drop returns true. A second call has no effect.
    pub fn close(&self, here: &Cell<i32>) -> bool {
        let count = here.replace(CLOSED_HERE);
        if count == CLOSED_HERE {
            return false;
        }
        // At 0 there is no reference left that could change it.
        if count + self.away.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.away.fetch_add(count + CLOSED, Ordering::AcqRel) + count == 0
    }
}

#[cfg(test)]
mod testing {
    use super::super::owned::Owned;
    use super::*;

    /// Both halves; `here` belongs to the thread that made it.
    #[derive(Debug)]
    pub struct Whole {
        here: Owned<Cell<i32>>,
        pub away: SplitCount,
    }

    impl Whole {
        pub fn new() -> Self {
            Self { here: Owned::new(Cell::new(0)), away: SplitCount::new() }
        }

        pub fn add(&self) {
            self.away.add(self.here.get());
        }

        pub fn sub(&self) -> bool {
            self.away.sub(self.here.get())
        }

        pub fn close(&self) -> bool {
            self.here.get().is_some_and(|here| self.away.close(here))
        }

        #[cfg(not(loom))]
        pub fn set_here(&self, count: i32) {
            self.here.get().expect("its own thread").set(count);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::testing::Whole;
    use super::*;
    use std::sync::Arc;

    #[test]
    fn reference_made_here_and_dropped_there_is_counted_once() {
        let count = Arc::new(Whole::new());
        count.add();
        let other = Arc::clone(&count);
        std::thread::spawn(move || {
            other.add();
            assert!(!other.sub());
            assert!(!other.sub());
        })
        .join()
        .expect("no panic");
        assert!(count.close());
        assert!(!count.close(), "closed twice");
    }

    #[test]
    fn last_reference_of_a_closed_count_is_reported() {
        let count = Whole::new();
        count.add();
        count.add();
        assert!(!count.sub());
        assert!(!count.close());
        count.add();
        assert!(!count.sub());
        assert!(count.sub());
    }

    #[test]
    fn half_that_grows_too_large_goes_to_the_other_and_the_sum_stays() {
        for one_way in [1, -1] {
            let count = Whole::new();
            // As if made on one side, and all but one dropped on the other.
            count.set_here(one_way * (HERE_MAX - 1));
            count.away.away.store(1 - one_way * (HERE_MAX - 1), Ordering::Relaxed);
            if one_way > 0 {
                count.add();
                assert!(!count.sub());
            } else {
                assert!(!count.sub());
                count.add();
            }
            assert_eq!(count.away.away.load(Ordering::Relaxed), 1 + one_way);
            assert!(!count.close());
            assert!(count.sub());
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::testing::Whole;
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    /// In every order of two threads' drops and the owner's close, exactly one of them frees, and
    /// sees what the others did before.
    #[test]
    fn one_of_all_frees() {
        loom::model(|| {
            let count = Arc::new(Whole::new());
            let freed = Arc::new(AtomicU32::new(0));
            let touched = Arc::new(loom::cell::UnsafeCell::new(0));
            count.add();
            count.add();
            let other = {
                let (count, freed) = (count.clone(), freed.clone());
                let touched = touched.clone();
                thread::spawn(move || {
                    // A reference of its own, as a waker that is cloned there.
                    count.add();
                    if count.sub() {
                        freed.fetch_add(1, Ordering::Relaxed);
                    }
                    touched.with_mut(|_| ());
                    if count.sub() {
                        freed.fetch_add(1, Ordering::Relaxed);
                        touched.with_mut(|_| ());
                    }
                })
            };
            if count.sub() {
                freed.fetch_add(1, Ordering::Relaxed);
            }
            if count.close() {
                freed.fetch_add(1, Ordering::Relaxed);
                touched.with_mut(|_| ());
            }
            other.join().expect("other");
            assert_eq!(freed.load(Ordering::Relaxed), 1);
        });
    }
}
