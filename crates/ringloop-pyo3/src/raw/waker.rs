//! Wakers, in both directions.
//!
//! A task's waker is ringloop's: its pointer is the data of a `Waker` of this crate, and it goes back to
//! ringloop's operations as it is. A combinator may poll its parts with a waker of its own, which ringloop
//! then gets behind functions of ours.
//!
//! Invariants:
//! 1. The data of a waker with `OURS` is a `HostWaker`, which the table made or which is lent for a poll.
//! 2. A lent one is not dropped.
//! 3. What `wake` and `drop` get is a boxed `Waker`; `drop` gets it once (contract 3).

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};

use ringloop_abi::{ForeignWaker, HostWaker, Table};

use super::panics::contained;
use super::table::loaded;

static OURS: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_ours);

/// The waker of a poll, for the time of the poll.
///
/// # Safety
/// `waker` is what ringloop has polled with.
pub unsafe fn lent(waker: *const HostWaker) -> ManuallyDrop<Waker> {
    // SAFETY: invariants 1 and 2.
    ManuallyDrop::new(unsafe { Waker::new(waker.cast(), &OURS) })
}

/// Calls `body` with a waker of ringloop's that wakes `waker`.
pub fn with_host<R>(table: &Table, waker: &Waker, body: impl FnOnce(*const HostWaker) -> R) -> R {
    if ptr::eq(waker.vtable(), &raw const OURS) {
        return body(waker.data().cast());
    }
    let data = Box::into_raw(Box::new(waker.clone())).cast();
    let foreign = ForeignWaker { data, wake: wake_boxed, drop: drop_boxed };
    // SAFETY: contract 3.
    let host = unsafe { (table.waker_of)(foreign) };
    let result = body(host);
    // SAFETY: contract 3: it is owned.
    unsafe { (table.waker_drop)(host) };
    result
}

/// The table: without one no such waker was made.
fn table() -> &'static Table {
    loaded().unwrap_or_else(|| unreachable!("a waker of a table that was not loaded"))
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: invariant 1.
    let another = unsafe { (table().waker_clone)(data.cast()) };
    RawWaker::new(another.cast(), &OURS)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: this function's contract is that of both.
    unsafe { wake_by_ref(data) };
    // SAFETY: the same.
    unsafe { drop_ours(data) };
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: invariant 1.
    unsafe { (table().waker_wake)(data.cast()) }
}

unsafe fn drop_ours(data: *const ()) {
    // SAFETY: invariants 1 and 2.
    unsafe { (table().waker_drop)(data.cast()) }
}

unsafe extern "C" fn wake_boxed(data: *mut c_void) {
    // SAFETY: invariant 3.
    let waker = unsafe { &*data.cast::<Waker>() };
    contained(|| waker.wake_by_ref());
}

unsafe extern "C" fn drop_boxed(data: *mut c_void) {
    // SAFETY: invariant 3.
    let waker = unsafe { Box::from_raw(data.cast::<Waker>()) };
    contained(|| drop(waker));
}
