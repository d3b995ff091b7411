//! A lock that parks: a word of three states, and a line of those who found it taken.
//!
//! Owns: the value. Never does: poison, or hand the lock over: whoever comes first takes it, and the first in the line
//! is woken to try again, as std does.
//!
//! ```text
//!   FREE ──────── lock ───────▶ HELD ── somebody stands in the line ──▶ AWAITED
//!    ▲                           │                                          │
//!    └────────── unlock ─────────┴────────── unlock: wake the first ────────┘
//! ```
//! Who was in the line takes the lock as `AWAITED`, since others may be behind it; at worst one looks at an empty line.
//!
//! # Invariants
//! 1. Whoever has changed the word from `FREE` has the value alone until it changes it back; a guard does both.

use super::waiters::{Ticket, Waiters};
use super::{locked, wait};
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

/// Tries before the line: a holder on another processor is mostly done by then.
const SPINS: u32 = 40;

/// A value that one holds at a time.
///
/// ```
/// use ringloop_coro::sync::Mutex;
///
/// ringloop_coro::start(1, || {
///     let list = Mutex::new(vec![1]);
///     list.lock().push(2);
///     assert_eq!(list.into_inner(), [1, 2]);
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
pub struct Mutex<T: ?Sized> {
    word: AtomicU32,
    line: std::sync::Mutex<Waiters>,
    value: UnsafeCell<T>,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody stands in the line.
const AWAITED: u32 = 2;

// SAFETY: invariant 1: the value goes with the lock from one thread to another, and no two have it.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: invariant 1.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// A value that nobody holds.
    pub fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            line: std::sync::Mutex::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value; nobody holds the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Hold the lock; waits while somebody else does.
    ///
    /// # Panics
    /// In async code on a runtime's thread, where it would have to wait.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_slowly(),
        }
    }

    #[cold]
    fn lock_slowly(&self) -> MutexGuard<'_, T> {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
        wait(self.lock_async(), "Mutex::lock_async()")
    }

    /// Hold the lock, as a future: for `select!` and async code.
    ///
    /// Cancel safety: safe.
    pub fn lock_async(&self) -> impl Future<Output = MutexGuard<'_, T>> {
        Locking {
            mutex: self,
            ticket: None,
        }
    }

    /// Hold the lock if nobody does.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let (taken, seen) = (Ordering::Acquire, Ordering::Relaxed);
        let exchanged = self.word.compare_exchange(FREE, HELD, taken, seen);
        exchanged.is_ok().then(|| self.guard())
    }

    /// Hold the lock if nobody does; who does is told that somebody waits.
    fn try_lock_awaited(&self) -> Option<MutexGuard<'_, T>> {
        let before = self.word.swap(AWAITED, Ordering::Acquire);
        (before == FREE).then(|| self.guard())
    }

    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            mutex: self,
            stays: PhantomData,
        }
    }

    #[cold]
    fn wake_first(&self) {
        let first = locked(&self.line).first();
        if let Some(waker) = first {
            waker.wake();
        }
    }

    /// The value, of a lock that is nobody else's.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

struct Locking<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    ticket: Option<Ticket>,
}

impl<'a, T: ?Sized> Future for Locking<'a, T> {
    type Output = MutexGuard<'a, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mutex = self.mutex;
        // In the line first: whoever unlocks after the word says so finds it there.
        locked(&mutex.line).stand(&mut self.ticket, cx.waker());
        let Some(guard) = mutex.try_lock_awaited() else {
            return Poll::Pending;
        };
        if let Some(ticket) = self.ticket.take() {
            // Whether it was woken or not: it has what it waited for, and wakes the next when it is done.
            locked(&mutex.line).leave(ticket);
        }
        Poll::Ready(guard)
    }
}

impl<T: ?Sized> Drop for Locking<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let stood = locked(&self.mutex.line).leave(ticket);
            if !stood {
                // It was woken, and does not come: somebody else may.
                self.mutex.wake_first();
            }
        }
    }
}

/// The lock, held; dropping it lets the next one try.
#[must_use = "the lock is given back at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// It stays on its thread, as std's does and as a coroutine does.
    stays: PhantomData<*const ()>,
}

// SAFETY: invariant 1: a reference to a guard is one to the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: invariant 1.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 1, and the guard is borrowed alone.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.mutex.word.swap(FREE, Ordering::Release) == AWAITED {
            self.mutex.wake_first();
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut mutex = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(value) => mutex.field("value", &&*value),
            None => mutex.field("value", &format_args!("<locked>")),
        };
        mutex.finish()
    }
}
