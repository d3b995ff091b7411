//! The place of a task's future, and then of its result.
//!
//! Called by: `core`, whose flags tell which of them is there. Knows neither loops nor wakers' tasks.
//!
//! # Invariants
//! 1. A stage holds its future from `new` until `end`, then nothing, and from `store` until `take` the
//!    result. One caller at a time touches it.
//! 2. A future is not moved until it is dropped: a stage is in a task's allocation.

use std::any::Any;
use std::cell::UnsafeCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A task's result, smaller than `JoinError`; an error without a payload is an abort.
pub(super) type Stored<T> = Result<T, Option<Box<Payload>>>;

type Payload = Box<dyn Any + Send>;

/// A future or its result.
pub(super) struct Stage<F: Future>(UnsafeCell<Contents<F>>);

/// A union, for its size: an enum's tag would take as much as a small future.
union Contents<F: Future> {
    future: ManuallyDrop<F>,
    #[expect(
        dead_code,
        reason = "reached by a cast, as the future is; here for its size and alignment"
    )]
    result: ManuallyDrop<Stored<F::Output>>,
}

impl<F: Future> Stage<F> {
    pub fn new(future: F) -> Self {
        Self(UnsafeCell::new(Contents { future: ManuallyDrop::new(future) }))
    }

    /// Polls the future.
    ///
    /// # Safety
    /// Invariant 1: it is there.
    pub unsafe fn poll(&self, waker: &Waker) -> Poll<Stored<F::Output>> {
        // SAFETY: invariant 1.
        let future = unsafe { &mut *self.0.get().cast::<F>() };
        // SAFETY: invariant 2.
        let future = unsafe { Pin::new_unchecked(future) };
        let mut cx = Context::from_waker(waker);
        match catch_unwind(AssertUnwindSafe(|| future.poll(&mut cx))) {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(Some(Box::new(payload)))),
        }
    }

    /// Drops the future; returns `result`, or the drop's panic.
    ///
    /// # Safety
    /// Invariant 1: it is there.
    pub unsafe fn end(&self, result: Stored<F::Output>) -> Stored<F::Output> {
        // SAFETY: invariant 1; if the drop panics the future is gone all the same, and nothing else
        // looks at it.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe {
            self.0.get().cast::<F>().drop_in_place();
        }));
        match dropped {
            Ok(()) => result,
            Err(payload) => Err(Some(Box::new(payload))),
        }
    }

    /// Stores the result.
    ///
    /// # Safety
    /// Invariant 1: the stage is empty.
    pub unsafe fn store(&self, result: Stored<F::Output>) {
        // SAFETY: invariant 1.
        unsafe { self.0.get().cast::<Stored<F::Output>>().write(result) };
    }

    /// Moves the result to `to`.
    ///
    /// # Safety
    /// Invariant 1: it is there, and `to` has room for it.
    pub unsafe fn take(&self, to: *mut Stored<F::Output>) {
        // SAFETY: invariant 1, and the caller's.
        unsafe { to.copy_from_nonoverlapping(self.0.get().cast(), 1) };
    }
}
