//! The cell of a channel's or lock's state: a `RefCell` for one thread, or a mutex.
//!
//! Called by: everything in `sync`, which is generic over it. A mutex is held for a few instructions.

use crate::executor::Local;
#[cfg(loom)]
use loom::sync::{
    Mutex,
    atomic::{AtomicU8, Ordering},
};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
#[cfg(not(loom))]
use std::sync::{
    Mutex,
    atomic::{AtomicU8, Ordering},
};

/// Whether the running task has budget left. `false`: it takes nothing and is polled again in its next
/// turn, so that other threads that always have more for it do not starve the loop's other tasks.
pub(super) fn has_share<P: Place>() -> bool {
    !P::IS_SHARED || Local::spend_budget()
}

/// [`OneThread`] or [`AnyThread`].
pub trait Place: sealed::Place {}

/// State and handles stay on one thread.
#[derive(Debug)]
pub enum OneThread {}

/// State and handles move between threads.
#[derive(Debug)]
pub enum AnyThread {}

impl Place for OneThread {}
impl Place for AnyThread {}

pub(super) mod sealed {
    use super::{Deref, fmt};

    /// The operations of a place.
    pub trait Place: fmt::Debug + 'static {
        /// A value with interior mutability.
        type Cell<T>;
        /// A shared handle of a value.
        type Shared<T>: Clone + Deref<Target = T>;
        /// A small number with compare-and-exchange.
        type Word;
        /// Whether other threads may change the state during a poll, so that a poll needs a budget.
        const IS_SHARED: bool;

        fn cell<T>(value: T) -> Self::Cell<T>;
        fn share<T>(value: T) -> Self::Shared<T>;
        /// Changes the value. `change` must not call back.
        fn with<T, R>(cell: &Self::Cell<T>, change: impl FnOnce(&mut T) -> R) -> R;
        fn word(value: u8) -> Self::Word;
        /// Replaces `from` by `to`, with acquire and release ordering; `false` if the word is another.
        fn exchange(word: &Self::Word, from: u8, to: u8) -> bool;
        fn look(word: &Self::Word) -> u8;
    }
}

impl sealed::Place for OneThread {
    type Cell<T> = RefCell<T>;
    type Shared<T> = Rc<T>;
    type Word = Cell<u8>;
    const IS_SHARED: bool = false;

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

    fn word(value: u8) -> Cell<u8> {
        Cell::new(value)
    }

    #[inline]
    fn exchange(word: &Cell<u8>, from: u8, to: u8) -> bool {
        let is_there = word.get() == from;
        if is_there {
            word.set(to);
        }
        is_there
    }

    fn look(word: &Cell<u8>) -> u8 {
        word.get()
    }
}

impl sealed::Place for AnyThread {
    type Cell<T> = Mutex<T>;
    type Shared<T> = Arc<T>;
    type Word = AtomicU8;
    const IS_SHARED: bool = true;

    fn cell<T>(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    fn share<T>(value: T) -> Arc<T> {
        Arc::new(value)
    }

    #[inline]
    fn with<T, R>(cell: &Mutex<T>, change: impl FnOnce(&mut T) -> R) -> R {
        // Consistent at any point: a panic elsewhere does not change that.
        change(&mut cell.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn word(value: u8) -> AtomicU8 {
        AtomicU8::new(value)
    }

    #[inline]
    fn exchange(word: &AtomicU8, from: u8, to: u8) -> bool {
        let done = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        done.is_ok()
    }

    fn look(word: &AtomicU8) -> u8 {
        word.load(Ordering::Relaxed)
    }
}
