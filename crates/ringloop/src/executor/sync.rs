//! The atomics of the executor, from `std`, or from loom under its model checker.

#[cfg(loom)]
pub(super) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering},
};
#[cfg(not(loom))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering},
};
