//! A lock whose waiters are tasks: a word of three states, and a line of waiters.
//!
//! Owns: the value. There is no poisoning: a task that panics unlocks.
//!
//! ```text
//!   FREE ──────── lock ───────▶ HELD ◀── unlock: hand over to the last waiter ── AWAITED
//!    ▲                           │ └──── a waiter enters the line ──────────────▶  │ ▲
//!    ├───────── unlock ──────────┘                                                 │ └─ unlock: hand over
//!    └───────── unlock: the line is empty again ───────────────────────────────────┘    to the next
//! ```
//! The lock is handed over along the line, so it is free only without waiters. Without contention it
//! costs one exchange of the word each way.
//!
//! # Invariants
//! 1. The holder has changed the word from `FREE`, or was granted the lock in the line. It owns the value
//!    until it changes the word back or hands the lock over.
//! 2. The word becomes `AWAITED`, and is changed from it, under the line's cell only.

use super::place::{AnyThread, Place};
use super::waiters::{Ticket, Waiters, wake};
use crate::executor::waiting;
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Held, and a waiter is or was in the line.
const AWAITED: u8 = 2;

/// A value under a lock; see [`crate::sync::Mutex`] and [`crate::sync::local::Mutex`].
///
/// If nothing is awaited while it is held, use a `std::sync::Mutex` or a `RefCell`.
///
/// ```
/// # ringloop::Runtime::new()?.block_on(async {
/// let lock = ringloop::sync::local::Mutex::new(vec![1]);
/// {
///     let mut list = lock.lock().await;
///     ringloop::time::yield_now().await; // the others wait
///     list.push(2);
/// }
/// assert_eq!(lock.into_inner(), [1, 2]);
/// # })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
/// A local one stays on its thread:
/// ```compile_fail,E0277
/// fn may_leave_the_thread<T: Send>(_: T) {}
/// may_leave_the_thread(ringloop::sync::local::Mutex::new(1));
/// ```
/// A guard is `Sync` only if the value is:
/// ```compile_fail,E0277
/// fn may_be_shared<T: Sync>(_: T) {}
/// let lock = ringloop::sync::Mutex::new(std::cell::Cell::new(1));
/// may_be_shared(lock.try_lock());
/// ```
pub struct Mutex<T, P: Place> {
    word: P::Word,
    line: P::Cell<Waiters>,
    value: UnsafeCell<T>,
    stays: PhantomData<P::Shared<()>>,
}

// SAFETY: invariant 1: the value moves between threads with the lock.
unsafe impl<T: Send> Sync for Mutex<T, AnyThread> {}

impl<T, P: Place> Mutex<T, P> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Self {
            word: P::word(FREE),
            line: P::cell(Waiters::default()),
            value: UnsafeCell::new(value),
            stays: PhantomData,
        }
    }

    /// Locks the mutex; waiters are served first in, first out.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the line.
    pub async fn lock(&self) -> MutexGuard<'_, T, P> {
        match self.try_lock() {
            Some(guard) => guard,
            None => Locking::new(self).await,
        }
    }

    /// Locks the mutex if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, P>> {
        P::exchange(&self.word, FREE, HELD).then(|| self.guard())
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// For the holder of the lock (invariant 1).
    fn guard(&self) -> MutexGuard<'_, T, P> {
        MutexGuard { mutex: self, value: PhantomData }
    }

    /// Takes the lock, or enters the line and sets `ticket`.
    fn poll_lock(&self, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        P::with(&self.line, |line| {
            let Some(place) = *ticket else {
                let is_taken = self.take_or_mark_awaited();
                if !is_taken {
                    *ticket = Some(line.push(waker, 1));
                }
                return is_taken;
            };
            let is_granted = line.poll(place, waker);
            if is_granted {
                line.leave(place);
                *ticket = None;
            }
            is_granted
        })
    }

    /// Takes the lock, or sets the word to `AWAITED`; under the line's cell.
    fn take_or_mark_awaited(&self) -> bool {
        loop {
            if P::exchange(&self.word, FREE, HELD) {
                return true;
            }
            // Until then the holder may unlock at any moment.
            if P::exchange(&self.word, HELD, AWAITED) || P::look(&self.word) == AWAITED {
                return false;
            }
        }
    }

    fn unlock(&self) {
        if !P::exchange(&self.word, HELD, FREE) {
            self.hand_over();
        }
    }

    /// Hands the lock to the first waiter, or frees it.
    #[cold]
    fn hand_over(&self) {
        let next = P::with(&self.line, |line| {
            let next = line.grant(1);
            if line.is_empty() {
                let word = if next.is_some() { HELD } else { FREE };
                P::exchange(&self.word, AWAITED, word);
            }
            next
        });
        wake(next);
    }
}

/// Waits in the line for the lock.
struct Locking<'a, T, P: Place> {
    mutex: &'a Mutex<T, P>,
    ticket: Option<Ticket>,
}

impl<'a, T, P: Place> Locking<'a, T, P> {
    fn new(mutex: &'a Mutex<T, P>) -> Self {
        Self { mutex, ticket: None }
    }
}

impl<'a, T, P: Place> Future for Locking<'a, T, P> {
    type Output = MutexGuard<'a, T, P>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mutex = self.mutex;
        if mutex.poll_lock(&mut self.ticket, cx.waker()) {
            Poll::Ready(mutex.guard())
        } else {
            waiting("a lock")
        }
    }
}

impl<T, P: Place> Drop for Locking<'_, T, P> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let granted = P::with(&self.mutex.line, |line| line.leave(ticket));
            if granted > 0 {
                self.mutex.unlock();
            }
        }
    }
}

/// A locked mutex; dropping the guard unlocks it.
pub struct MutexGuard<'a, T: 'a, P: Place> {
    mutex: &'a Mutex<T, P>,
    /// `Send` and `Sync` as a reference to the value.
    value: PhantomData<&'a mut T>,
}

impl<'a, T: 'a, P: Place> Deref for MutexGuard<'a, T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: invariant 1.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<'a, T: 'a, P: Place> DerefMut for MutexGuard<'a, T, P> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 1, and the guard is borrowed alone.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<'a, T: 'a, P: Place> Drop for MutexGuard<'a, T, P> {
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}

impl<T, P: Place> fmt::Debug for Mutex<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("is_free", &(P::look(&self.word) == FREE))
            .finish_non_exhaustive()
    }
}

impl<'a, T: fmt::Debug + 'a, P: Place> fmt::Debug for MutexGuard<'a, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use loom::thread;
    use std::sync::Arc;
    use std::task::Wake;

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    type Counted = Mutex<AtomicU32, AnyThread>;

    /// A task that locks, waits for its wake if it has to, and counts in two steps.
    fn count_under(mutex: &Counted) {
        let woken = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut locking = Locking::new(mutex);
        let mut poll = || Pin::new(&mut locking).poll(&mut Context::from_waker(&waker));
        let guard = match poll() {
            Poll::Ready(guard) => guard,
            Poll::Pending => {
                while !woken.0.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                let Poll::Ready(guard) = poll() else {
                    panic!("woken without the lock");
                };
                guard
            }
        };
        let before = guard.load(Ordering::Relaxed);
        guard.store(before + 1, Ordering::Relaxed);
    }

    fn model(threads: u32, also: impl Fn(&Counted) + Copy + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let mutex = Arc::new(Counted::new(AtomicU32::new(0)));
            let others: Vec<_> = (0..threads)
                .map(|_| {
                    let mutex = Arc::clone(&mutex);
                    thread::spawn(move || count_under(&mutex))
                })
                .collect();
            also(&mutex);
            for other in others {
                assert!(other.join().is_ok());
            }
            let guard = mutex.try_lock().expect("all threads have ended");
            assert_eq!(guard.load(Ordering::Relaxed), threads, "held by two");
        });
    }

    /// One task at a time owns the value, and a waiter is woken with the lock.
    #[test]
    fn lock_is_handed_over() {
        model(2, |mutex| drop(mutex.try_lock()));
    }

    /// A wait dropped before or after its grant blocks no other.
    #[test]
    fn dropped_wait_hands_the_lock_over() {
        model(2, |mutex| {
            let mut locking = Locking::new(mutex);
            let waker = Waker::from(Arc::new(Flag(AtomicBool::new(false))));
            drop(Pin::new(&mut locking).poll(&mut Context::from_waker(&waker)));
        });
    }
}
