//! A lock whose waiting is a task's: a word of three states, and a line of those who found it taken.
//!
//! Owns: the value. Never does: poison; a task that panics gives the lock back.
//!
//! ```text
//!   FREE ──────── lock ───────▶ HELD ◀── unlock: the last of the line has it ── AWAITED
//!    ▲                           │ └──── somebody joins the line ─────────────▶   │ ▲
//!    ├───────── unlock ──────────┘                                                │ └─ unlock: the
//!    └───────── unlock: those who waited have given up ───────────────────────────┘    next has it
//! ```
//! The lock goes from hand to hand along the line, so it is free only where nobody waits, and whoever finds it so takes
//! it past nobody. Without a contender it costs one exchange of the word each way.
//!
//! # Invariants
//! 1. Whoever has changed the word from `FREE`, or was granted the lock in the line, has the value alone until it
//!    changes the word back or passes the lock on.
//! 2. The word becomes `AWAITED`, and is changed from it, under the line's cell only.

use super::place::{AnyThread, Place};
use super::waiters::{Ticket, Waiters};
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

const FREE: u8 = 0;
const HELD: u8 = 1;
/// Held, and somebody stands in the line, or has stood there.
const AWAITED: u8 = 2;

/// A value under a lock; see [`crate::sync::Mutex`] and [`crate::sync::local::Mutex`].
///
/// Where nothing is awaited while it is held, a `std::sync::Mutex` or a `RefCell` is the better choice.
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
/// and what another thread may not look at stays unseen by it:
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

// SAFETY: invariant 1: the value goes with the lock from one thread to another, and no two have it.
unsafe impl<T: Send> Sync for Mutex<T, AnyThread> {}

impl<T, P: Place> Mutex<T, P> {
    /// A value that nobody holds.
    pub fn new(value: T) -> Self {
        Self {
            word: P::word(FREE),
            line: P::cell(Waiters::default()),
            value: UnsafeCell::new(value),
            stays: PhantomData,
        }
    }

    /// Wait for the lock, in the order of asking.
    /// Cancel safety: dropping the future gives up the place in the line.
    pub async fn lock(&self) -> MutexGuard<'_, T, P> {
        match self.try_lock() {
            Some(guard) => guard,
            None => Locking::new(self).await,
        }
    }

    /// Take the lock now, if it is free and nobody waits for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, P>> {
        P::exchange(&self.word, FREE, HELD).then(|| self.guard())
    }

    /// The value; nobody holds the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// For whoever has the lock (invariant 1).
    fn guard(&self) -> MutexGuard<'_, T, P> {
        MutexGuard {
            mutex: self,
            value: PhantomData,
        }
    }

    /// Take the lock, or wait in the line; `ticket` is the place in it.
    fn poll_lock(&self, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        P::with(&self.line, |line| {
            let Some(place) = *ticket else {
                let is_taken = self.take_or_announce();
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

    /// Take the lock, or have the word say that somebody waits; under the line's cell.
    fn take_or_announce(&self) -> bool {
        loop {
            if P::exchange(&self.word, FREE, HELD) {
                return true;
            }
            // Until then the holder may give the lock back at any moment.
            if P::exchange(&self.word, HELD, AWAITED) || P::look(&self.word) == AWAITED {
                return false;
            }
        }
    }

    fn unlock(&self) {
        if !P::exchange(&self.word, HELD, FREE) {
            self.pass_on();
        }
    }

    /// Give the lock to the first in the line, or nobody.
    #[cold]
    fn pass_on(&self) {
        let next = P::with(&self.line, |line| {
            let next = line.grant(1);
            if line.is_empty() {
                let word = if next.is_some() { HELD } else { FREE };
                P::exchange(&self.word, AWAITED, word);
            }
            next
        });
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

/// Waits in the line.
struct Locking<'a, T, P: Place> {
    mutex: &'a Mutex<T, P>,
    ticket: Option<Ticket>,
}

impl<'a, T, P: Place> Locking<'a, T, P> {
    fn new(mutex: &'a Mutex<T, P>) -> Self {
        Self {
            mutex,
            ticket: None,
        }
    }
}

impl<'a, T, P: Place> Future for Locking<'a, T, P> {
    type Output = MutexGuard<'a, T, P>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mutex = self.mutex;
        if mutex.poll_lock(&mut self.ticket, cx.waker()) {
            Poll::Ready(mutex.guard())
        } else {
            Poll::Pending
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

/// The lock, held; dropping it lets the next one in.
pub struct MutexGuard<'a, T: 'a, P: Place> {
    mutex: &'a Mutex<T, P>,
    /// A guard is as good as the value, to other threads.
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

    /// A task that takes the lock, is woken where it has to wait, and counts by two steps.
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
            let guard = mutex.try_lock().expect("everybody is done");
            assert_eq!(guard.load(Ordering::Relaxed), threads, "held by two");
        });
    }

    /// One at a time has the value, and whoever waits is woken with the lock.
    #[test]
    fn lock_is_passed_from_hand_to_hand() {
        model(2, |mutex| drop(mutex.try_lock()));
    }

    /// A wait that is given up, before or after it was granted the lock, stops nobody.
    #[test]
    fn wait_that_is_given_up_passes_the_lock_on() {
        model(2, |mutex| {
            let mut locking = Locking::new(mutex);
            let waker = Waker::from(Arc::new(Flag(AtomicBool::new(false))));
            drop(Pin::new(&mut locking).poll(&mut Context::from_waker(&waker)));
        });
    }
}
