//! A waker in one word: most waiters for a task are tasks of this executor, whose wakers share one
//! vtable.
//!
//! Owns: the waker that was put in. Called by: `task`, which wakes it.
//!
//! # Invariants
//! 1. The word is null; or the data of a waker with the executor's vtable; or the address of a box
//!    with any other waker, its lowest bit set. Data has that bit clear: it is a task's address.
//! 2. A waker is returned once: `take` leaves null.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWakerVTable, Waker};

/// Tag bit for the address of a box.
const BOXED: usize = 1;

/// Holds a waker, or none.
#[derive(Debug)]
pub(crate) struct WaiterCell(Cell<*mut ()>);

impl WaiterCell {
    pub fn new() -> Self {
        Self(Cell::new(ptr::null_mut()))
    }

    /// Takes the waker; `own` is what was given to [`WaiterCell::put`].
    pub fn take(&self, own: &'static RawWakerVTable) -> Option<Waker> {
        let word = self.0.replace(ptr::null_mut());
        if word.is_null() {
            return None;
        }
        if word.addr() & BOXED == 0 {
            // SAFETY: invariants 1 and 2: it was a waker's data, with this vtable.
            return Some(unsafe { Waker::new(word, own) });
        }
        let boxed = word.map_addr(|address| address & !BOXED);
        // SAFETY: invariants 1 and 2.
        Some(*unsafe { Box::from_raw(boxed.cast::<Waker>()) })
    }

    /// Stores a waker; drops the one before. Allocates if its vtable is not `own`.
    pub fn put(&self, waker: Waker, own: &'static RawWakerVTable) {
        drop(self.take(own));
        let data = waker.data().cast_mut();
        let is_own = ptr::eq(waker.vtable(), own) && !data.is_null() && data.addr() & BOXED == 0;
        self.0.set(if is_own {
            ManuallyDrop::new(waker).data().cast_mut()
        } else {
            let boxed = Box::into_raw(Box::new(waker)).cast::<()>();
            boxed.map_addr(|address| address | BOXED)
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{RawWaker, Wake};

    static OWN: RawWakerVTable =
        RawWakerVTable::new(|data| RawWaker::new(data, &OWN), count, count, count);

    fn count(data: *const ()) {
        // SAFETY: the tests put a counter there.
        let calls = unsafe { &*data.cast::<AtomicUsize>() };
        calls.fetch_add(1, Ordering::Relaxed);
    }

    struct Foreign;
    impl Wake for Foreign {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn invariant_1_waker_comes_out_as_it_went_in() {
        let calls = AtomicUsize::new(0);
        // SAFETY: the vtable's functions only count their calls.
        let own = unsafe { Waker::new((&raw const calls).cast(), &OWN) };
        let foreign = Waker::from(Arc::new(Foreign));
        let cell = WaiterCell::new();
        for waker in [&own, &foreign, Waker::noop()] {
            cell.put(waker.clone(), &OWN);
            let back = cell.take(&OWN).expect("it was put in");
            assert_eq!(back.data(), waker.data());
        }
        assert!(cell.take(&OWN).is_none());
    }

    #[test]
    fn invariant_2_waker_is_given_out_or_dropped_once() {
        let calls = AtomicUsize::new(0);
        let shared = Arc::new(Foreign);
        let cell = WaiterCell::new();
        for _ in 0..2 {
            cell.put(Waker::from(Arc::clone(&shared)), &OWN);
            // SAFETY: as above.
            let own = unsafe { Waker::new((&raw const calls).cast(), &OWN) };
            cell.put(own, &OWN);
        }
        assert_eq!(Arc::strong_count(&shared), 1);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        drop(cell.take(&OWN));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }
}
