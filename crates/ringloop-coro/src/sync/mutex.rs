//! A lock that parks: std's, tried first, and a line of those who found it taken.
//!
//! Owns: the value. Never does: poison, or hand the lock over: whoever comes first takes it, and the first in the line
//! is woken to try again, as std's does.
//!
//! ```text
//!   lock:   try ─ taken ─▶ spin a little ─ taken ─▶ stand in the line ─▶ try once more ─ taken ─▶ park
//!   unlock: free the value ─▶ does anybody wait? wake the first
//! ```
//! The second try and the look at the line are on either side of a fence each, so one of the two sees the other.

use super::waiters::{Ticket, Waiters};
use super::{locked, wait};
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
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
    line: Line,
    value: std::sync::Mutex<T>,
}

#[derive(Default)]
struct Line {
    /// As many as stand in it.
    len: AtomicUsize,
    waiters: std::sync::Mutex<Waiters>,
}

impl Line {
    fn change<R>(&self, change: impl FnOnce(&mut Waiters) -> R) -> R {
        let mut waiters = locked(&self.waiters);
        let result = change(&mut waiters);
        self.len.store(waiters.len(), Ordering::Relaxed);
        result
    }

    #[inline]
    fn wake_first(&self) {
        fence(Ordering::SeqCst);
        if self.len.load(Ordering::Relaxed) > 0
            && let Some(waker) = self.change(Waiters::first)
        {
            waker.wake();
        }
    }
}

impl<T> Mutex<T> {
    /// A value that nobody holds.
    pub fn new(value: T) -> Self {
        Self {
            line: Line::default(),
            value: std::sync::Mutex::new(value),
        }
    }

    /// The value; nobody holds the lock.
    pub fn into_inner(self) -> T {
        let value = self.value.into_inner();
        value.unwrap_or_else(std::sync::PoisonError::into_inner)
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
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard {
            mutex: self,
            value: Some(value),
        })
    }

    /// The value, of a lock that is nobody else's.
    pub fn get_mut(&mut self) -> &mut T {
        let value = self.value.get_mut();
        value.unwrap_or_else(std::sync::PoisonError::into_inner)
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
        let mut guard = mutex.try_lock();
        if guard.is_none() {
            let line = &mutex.line;
            line.change(|waiters| waiters.stand(&mut self.ticket, cx.waker()));
            fence(Ordering::SeqCst);
            guard = mutex.try_lock();
        }
        let Some(guard) = guard else {
            return Poll::Pending;
        };
        if let Some(ticket) = self.ticket.take() {
            // Whether it was woken or not: it has what it waited for, and wakes the next when it is done.
            mutex.line.change(|waiters| waiters.leave(ticket));
        }
        Poll::Ready(guard)
    }
}

impl<T: ?Sized> Drop for Locking<'_, T> {
    fn drop(&mut self) {
        let line = &self.mutex.line;
        if let Some(ticket) = self.ticket.take()
            && !line.change(|waiters| waiters.leave(ticket))
        {
            // It was woken, and does not come: somebody else may.
            line.wake_first();
        }
    }
}

/// The lock, held; dropping it lets the next one try.
#[must_use = "the lock is given back at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// Until it is dropped.
    value: Option<std::sync::MutexGuard<'a, T>>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("a guard holds its lock until it is dropped"),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("a guard holds its lock until it is dropped"),
        }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.value = None;
        self.mutex.line.wake_first();
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
