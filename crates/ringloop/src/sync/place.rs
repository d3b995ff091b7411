//! Where a channel or a lock keeps its state: in a cell of one thread, or behind a lock.
//!
//! Called by: everything in `sync`, which is written once for both.
//! Never does: wait for a task; a lock here is held for a few instructions.

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
use std::task::{Context, Poll};

/// Whether the running task may be given what is there at once: it must not keep the loop's others waiting because
/// other threads always have more for it. `false`: it is polled again in its next turn.
pub(super) fn has_share<P: Place>() -> bool {
    !P::IS_SHARED || Local::spend_share()
}

/// Have the task polled again after the others.
#[cold]
pub(super) fn next_turn<T>(cx: &Context<'_>) -> Poll<T> {
    cx.waker().wake_by_ref();
    Poll::Pending
}

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
    use super::{Deref, fmt};

    /// How a place keeps a value and shares it.
    pub trait Place: fmt::Debug + 'static {
        /// A value that is changed through a shared reference.
        type Cell<T>;
        /// A handle of many to one value.
        type Shared<T>: Clone + Deref<Target = T>;
        /// A small number that one of those who want to change it does.
        type Word;
        /// Whether others may change the state all the time, while a task is being polled: then a poll is given a
        /// share. On one thread they wait until it is over.
        const IS_SHARED: bool;

        fn cell<T>(value: T) -> Self::Cell<T>;
        fn share<T>(value: T) -> Self::Shared<T>;
        /// Change the value. Nothing that is called back may happen in there.
        fn with<T, R>(cell: &Self::Cell<T>, change: impl FnOnce(&mut T) -> R) -> R;
        fn word(value: u8) -> Self::Word;
        /// Put `to` where `from` is, if it is; whoever does so next sees what was done before.
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
        // A state is whole at any point: a panic is one task's, not everybody's.
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
