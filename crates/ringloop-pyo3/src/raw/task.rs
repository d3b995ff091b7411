//! A future of ours, on its way to the loop.
//!
//! Invariants:
//! 1. The future is boxed until ringloop drops it, once, and polled and dropped on the thread that it was
//!    started on, never one within the other (contract 2): so it need not be `Send`.
//! 2. The output is filled before `poll` says that it is ready (contract 5).

use std::ffi::c_void;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll};

use pyo3::prelude::*;
use ringloop_abi::{Future as RawFuture, HostWaker, Output, PENDING, READY};

use super::panics::{contained, panicked};
use super::{table, waker};

/// Starts a future on the loop that runs in this thread; its awaitable.
pub fn start<F>(py: Python<'_>, future: F) -> PyResult<Bound<'_, PyAny>>
where
    F: Future<Output = PyResult<Py<PyAny>>> + 'static,
{
    let table = table::load(py)?;
    let data = Box::into_raw(Box::new(future)).cast();
    let raw = RawFuture { data, poll: poll::<F>, drop: drop_boxed::<F> };
    // SAFETY: contracts 2 and 6.
    let awaitable = unsafe { (table.future_into_py)(raw) };
    // SAFETY: contract 6: an owned reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, awaitable.cast()) }
}

unsafe extern "C" fn poll<F>(data: *mut c_void, waker: *const HostWaker, output: *mut Output) -> i32
where
    F: Future<Output = PyResult<Py<PyAny>>>,
{
    // SAFETY: invariant 1: nothing else refers to it.
    let future = unsafe { &mut *data.cast::<F>() };
    // SAFETY: invariant 1: it stays in its box.
    let future = unsafe { Pin::new_unchecked(future) };
    // SAFETY: contract 3.
    let waker = unsafe { waker::lent(waker) };
    // Attached for PyO3, too: so that references are dropped at once.
    let polled = Python::try_attach(|py| {
        let poll = || future.poll(&mut Context::from_waker(&waker));
        let polled = catch_unwind(AssertUnwindSafe(poll));
        match polled.unwrap_or_else(|payload| Poll::Ready(Err(panicked(&*payload)))) {
            Poll::Pending => None,
            Poll::Ready(Ok(object)) => Some(object.into_ptr()),
            Poll::Ready(Err(error)) => {
                error.restore(py);
                Some(ptr::null_mut())
            }
        }
    });
    let Some(Some(object)) = polled else {
        return PENDING;
    };
    // SAFETY: invariant 2: the caller's; no other reference is used during the call.
    unsafe { (*output).object = object.cast() };
    READY
}

unsafe extern "C" fn drop_boxed<F>(data: *mut c_void) {
    // SAFETY: invariant 1.
    let future = unsafe { Box::from_raw(data.cast::<F>()) };
    // At the interpreter's end it is left.
    let mut future = Some(future);
    if Python::try_attach(|_| contained(|| drop(future.take()))).is_none() {
        std::mem::forget(future);
    }
}
