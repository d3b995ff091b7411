//! How many references there are, counted without atomics where nobody else looks.
//!
//! Owns: the two halves of the count. Called by: `task` (wakers of a task, tasks of a loop).
//! Never does: free anything; it says who has to.
//!
//! ```text
//!   open:    count = here (a plain number, the owner's thread) + away (an atomic, all others)
//!              │     neither half says anything alone: a reference made here may be dropped there
//!            close (the owner's thread, once)
//!              ▼
//!   closed:  count = away, on every thread; whoever brings it to 0 frees
//! ```
//! While the count is open its owner holds what is counted, so nobody has to look for the 0. Checked by
//! loom below.

use super::owned::Owned;
use super::sync::{AtomicIsize, Ordering};
use std::cell::Cell;

/// Set in `away` once the count is closed; far above any count.
const CLOSED: isize = 1 << (isize::BITS - 2);

/// What the owner's half is once the count is closed; no sum of references.
const CLOSED_HERE: isize = isize::MIN;

/// A reference count that its own thread changes without atomics, and what else is that thread's alone.
#[derive(Debug)]
pub(super) struct SplitCount<T> {
    here: Owned<Here<T>>,
    away: AtomicIsize,
}

#[derive(Debug)]
struct Here<T> {
    count: Cell<isize>,
    value: T,
}

impl<T> SplitCount<T> {
    /// No references, and the calling thread the owner, of `value` too.
    pub fn new(value: T) -> Self {
        let here = Here {
            count: Cell::new(0),
            value,
        };
        Self {
            here: Owned::new(here),
            away: AtomicIsize::new(0),
        }
    }

    /// What only the owner's thread may touch.
    #[inline]
    pub fn here(&self) -> Option<&T> {
        self.here.get().map(|here| &here.value)
    }

    /// Another reference.
    #[inline]
    pub fn add(&self) {
        match self.open_here() {
            Some(here) => here.count.set(here.count.get() + 1),
            None => {
                self.away.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// One reference less; returns whether it was the last of a closed count.
    #[inline]
    pub fn sub(&self) -> bool {
        match self.open_here() {
            Some(here) => {
                here.count.set(here.count.get() - 1);
                false
            }
            None => self.away.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1,
        }
    }

    /// The owner lets go; returns whether no references are left. Else the one that drops the last
    /// is told. On another thread than the owner's it does nothing.
    pub fn close(&self) -> bool {
        let Some(here) = self.open_here() else {
            return false;
        };
        let count = here.count.replace(CLOSED_HERE);
        // Where the sum is 0 nobody is left who could change it.
        if count + self.away.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.away.fetch_add(count + CLOSED, Ordering::AcqRel) + count == 0
    }

    fn open_here(&self) -> Option<&Here<T>> {
        self.here
            .get()
            .filter(|here| here.count.get() != CLOSED_HERE)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn reference_made_here_and_dropped_there_is_counted_once() {
        let count = Arc::new(SplitCount::new(()));
        count.add();
        let other = Arc::clone(&count);
        std::thread::spawn(move || {
            other.add();
            assert!(!other.sub());
            assert!(!other.sub());
            assert!(!other.close(), "only the owner closes");
        })
        .join()
        .expect("no panic");
        assert!(count.close());
    }

    #[test]
    fn last_reference_of_a_closed_count_is_told() {
        let count = SplitCount::new(());
        count.add();
        count.add();
        assert!(!count.sub());
        assert!(!count.close());
        count.add();
        assert!(!count.sub());
        assert!(count.sub());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    /// Whatever the order of two threads' drops and the owner's end: one of them frees, once, and sees
    /// what the others did before.
    #[test]
    fn one_of_all_frees() {
        loom::model(|| {
            let count = Arc::new(SplitCount::new(()));
            let freed = Arc::new(AtomicU32::new(0));
            let touched = Arc::new(loom::cell::UnsafeCell::new(0));
            count.add();
            count.add();
            let other = {
                let (count, freed) = (count.clone(), freed.clone());
                let touched = touched.clone();
                thread::spawn(move || {
                    // A copy of its own, as a waker that is cloned there.
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
