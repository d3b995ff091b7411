//! Where a channel or a lock keeps its state: in a cell of one thread, or behind a lock.
//!
//! Called by: everything in `sync`, which is written once for both.
//! Never does: wait for a task; a lock here is held for a few instructions.

use std::cell::{RefCell, RefMut};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// [`OneThread`] or [`AnyThread`].
pub trait Place: sealed::Place {}

/// State and handles stay on one thread.
#[derive(Debug)]
pub enum OneThread {}

/// State and handles go between threads.
#[derive(Debug)]
pub enum AnyThread {}

impl Place for OneThread {}
impl Place for AnyThread {}

pub(super) mod sealed {
    use super::{Deref, DerefMut, fmt};

    /// How a place keeps a value and shares it.
    pub trait Place: fmt::Debug + 'static {
        /// A value that is changed through a shared reference.
        type Cell<T>;
        /// Access to the value in a cell; nobody else has it meanwhile.
        type Guard<'a, T: 'a>: DerefMut<Target = T>;
        /// A handle of many to one value.
        type Shared<T>: Clone + Deref<Target = T>;

        fn cell<T>(value: T) -> Self::Cell<T>;
        fn share<T>(value: T) -> Self::Shared<T>;
        /// Change the value. Nothing that is called back may happen in there.
        fn with<T, R>(cell: &Self::Cell<T>, change: impl FnOnce(&mut T) -> R) -> R;
        /// Keep the value, if nobody does.
        fn try_guard<T>(cell: &Self::Cell<T>) -> Option<Self::Guard<'_, T>>;
        fn into_inner<T>(cell: Self::Cell<T>) -> T;
    }
}

impl sealed::Place for OneThread {
    type Cell<T> = RefCell<T>;
    type Guard<'a, T: 'a> = RefMut<'a, T>;
    type Shared<T> = Rc<T>;

    fn cell<T>(value: T) -> RefCell<T> {
        RefCell::new(value)
    }

    fn share<T>(value: T) -> Rc<T> {
        Rc::new(value)
    }

    #[inline]
    fn with<T, R>(cell: &RefCell<T>, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut cell.borrow_mut())
    }

    fn try_guard<T>(cell: &RefCell<T>) -> Option<RefMut<'_, T>> {
        cell.try_borrow_mut().ok()
    }

    fn into_inner<T>(cell: RefCell<T>) -> T {
        cell.into_inner()
    }
}

impl sealed::Place for AnyThread {
    type Cell<T> = Mutex<T>;
    type Guard<'a, T: 'a> = MutexGuard<'a, T>;
    type Shared<T> = Arc<T>;

    fn cell<T>(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    fn share<T>(value: T) -> Arc<T> {
        Arc::new(value)
    }

    #[inline]
    fn with<T, R>(cell: &Mutex<T>, change: impl FnOnce(&mut T) -> R) -> R {
        // A state is whole at any point, and a user's value is handed on as std's does not: a panic is one
        // task's, not everybody's.
        change(&mut cell.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn try_guard<T>(cell: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        match cell.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    fn into_inner<T>(cell: Mutex<T>) -> T {
        cell.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
