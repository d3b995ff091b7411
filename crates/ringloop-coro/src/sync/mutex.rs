//! A lock that parks: a word of three states, and a line of waiters.
//!
//! Owns: [`Mutex`] and the value in it. Called by: coroutines, threads and async code; `condvar`.
//! There is no poisoning.
//!
//! ```text
//!   FREE ────── lock ─────▶ HELD ─── a waiter enters the line ───▶ AWAITED ─┐
//!    ▲                       │                                      │    ▲  │ unlock: hand over
//!    └──────── unlock ───────┴─────── unlock: wake the first ───────┘    └──┘ to a starved waiter
//! ```
//! A waiter takes the lock as `AWAITED`, since others may be behind it; at worst it finds an empty
//! line.
//!
//! The first to try gets a free lock, and the first waiter is woken to try again, as in std:
//! handing it over each time would cost a switch. A coroutine that holds the lock across its waits,
//! and takes it again without one, would starve the others of its thread. So after
//! [`limits::LOCK_FAILED_TRIES_MAX`] failed tries the lock is handed to the first waiter.
//!
//! # Invariants
//! 1. The holder has changed the word from `FREE` or was handed the lock. It owns the value until it
//!    changes the word back or hands the lock over. A guard does both; so does a [`LockFuture`] that
//!    has not seen that it was handed the lock.

use super::waiters::{Ticket, Waiters, wake};
use crate::atomics::{AtomicU32, Mutex as LineLock, Ordering};
use crate::limits;
use crate::wait::block_on_anywhere;
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

/// Tries before a wait: a holder on another processor has mostly unlocked by then.
const SPINS: u32 = 40;

/// A value with one user at a time.
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
    line: LineLock<LockQueue>,
    value: UnsafeCell<T>,
}

/// The waiters for a lock.
struct LockQueue {
    waiters: Waiters,
    /// The first waiter, if it has failed too often.
    starved: Option<Ticket>,
    /// The waiter that has the lock and does not know it yet.
    handed_to: Option<Ticket>,
}

impl LockQueue {
    const fn new() -> Self {
        Self { waiters: Waiters::new(), starved: None, handed_to: None }
    }

    /// Whether the waiter was handed the lock, which it has from now on.
    fn accept(&mut self, ticket: Option<Ticket>) -> bool {
        let accepted = self.handed_to.take_if(|to| Some(*to) == ticket);
        accepted.is_some()
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a waiter may be in the line.
const AWAITED: u32 = 2;

// SAFETY: invariant 1: the value moves between threads with the lock.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: invariant 1.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            line: LineLock::new(LockQueue::new()),
            value: UnsafeCell::new(value),
        }
    }

    /// An unlocked mutex; loom's atomics have no `const` constructors.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            line: LineLock::new(LockQueue::new()),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, and waits while it is locked.
    ///
    /// # Panics
    /// In async code on a runtime's thread, if it would have to wait.
    ///
    /// # Cancel safety
    /// A cancelled coroutine does not hold the lock.
    #[inline]
    #[track_caller]
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
        block_on_anywhere(self.lock_async(), "Mutex::lock_async()")
    }

    /// As [`Mutex::lock`]: for `select!` and async code.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn lock_async(&self) -> impl Future<Output = MutexGuard<'_, T>> {
        LockFuture { mutex: self, ticket: None, failed_tries: 0 }
    }

    /// Locks the mutex if it is unlocked.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let (taken, seen) = (Ordering::Acquire, Ordering::Relaxed);
        let exchanged = self.word.compare_exchange(FREE, HELD, taken, seen);
        exchanged.is_ok().then(|| self.guard())
    }

    /// Locks the mutex if it is unlocked; else marks it as awaited.
    fn try_lock_awaited(&self) -> Option<MutexGuard<'_, T>> {
        let before = self.word.swap(AWAITED, Ordering::Acquire);
        (before == FREE).then(|| self.guard())
    }

    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    fn with_line<R>(&self, work: impl FnOnce(&mut LockQueue) -> R) -> R {
        // Consistent at any point: a panic elsewhere does not change that.
        work(&mut self.line.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cold]
    fn wake_first(&self) {
        let first = self.with_line(|queue| queue.waiters.pop());
        wake(first);
    }

    /// Unlocks an awaited mutex: hands it to the first waiter, or frees it and wakes that waiter.
    #[cold]
    fn unlock_awaited(&self) {
        let first = self.with_line(|queue| {
            let front = queue.waiters.front();
            if front.is_some() && queue.starved == front {
                queue.handed_to = queue.starved.take();
            } else {
                // Not a store: loom may order that before a swap which it follows.
                self.word.swap(FREE, Ordering::Release);
            }
            queue.waiters.pop()
        });
        wake(first);
    }

    /// The value, which the exclusive borrow unlocks.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

struct LockFuture<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    ticket: Option<Ticket>,
    /// Tries for which it was woken, and that failed.
    failed_tries: u32,
}

impl<'a, T: ?Sized> Future for LockFuture<'a, T> {
    type Output = MutexGuard<'a, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mutex = this.mutex;
        // In the line first: an unlock that sees `AWAITED` finds it there.
        let is_handed = mutex.with_line(|queue| {
            let is_handed = queue.accept(this.ticket);
            if !is_handed {
                this.enter(queue, cx.waker());
            }
            is_handed
        });
        if is_handed {
            self.ticket = None;
            return Poll::Ready(mutex.guard());
        }
        let Some(guard) = mutex.try_lock_awaited() else {
            return Poll::Pending;
        };
        if let Some(ticket) = self.ticket.take() {
            // Woken or not, it has the lock, and wakes the next waiter when it unlocks.
            mutex.with_line(|queue| queue.waiters.leave(ticket));
        }
        Poll::Ready(guard)
    }
}

impl<T: ?Sized> LockFuture<'_, T> {
    fn enter(&mut self, queue: &mut LockQueue, waker: &Waker) {
        let was_woken = self.ticket.is_some_and(|ticket| !queue.waiters.contains(ticket));
        self.failed_tries += u32::from(was_woken);
        queue.waiters.enter(&mut self.ticket, waker);
        if self.failed_tries >= limits::LOCK_FAILED_TRIES_MAX
            && queue.waiters.front() == self.ticket
        {
            queue.starved = self.ticket;
        }
    }
}

impl<T: ?Sized> Drop for LockFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let (is_handed, was_in_line) = self
                .mutex
                .with_line(|queue| (queue.accept(Some(ticket)), queue.waiters.leave(ticket)));
            if is_handed {
                drop(self.mutex.guard());
            } else if !was_in_line {
                // It was woken and does not try: the next waiter may.
                self.mutex.wake_first();
            }
        }
    }
}

/// A locked mutex; dropping the guard unlocks it.
#[must_use = "the mutex is unlocked at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// It stays on its thread, as std's guard and a coroutine do.
    not_send: PhantomData<*const ()>,
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
        let (freed, seen) = (Ordering::Release, Ordering::Relaxed);
        let exchanged = self.mutex.word.compare_exchange(HELD, FREE, freed, seen);
        if exchanged.is_err() {
            self.mutex.unlock_awaited();
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

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell as Watched;
    use loom::sync::Arc;
    use loom::thread::{self, JoinHandle, Thread};
    use std::pin::pin;
    use std::task::Wake;

    /// A number whose accesses loom checks.
    type Counted = Mutex<Watched<u32>>;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Blocks the thread; if no wake comes, loom reports the deadlock.
    fn block_on<F: Future>(future: F) -> F::Output {
        let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
        let mut cx = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut cx) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }

    fn increment(guard: &MutexGuard<'_, Watched<u32>>) {
        // SAFETY: invariant 1, which loom checks here.
        guard.with_mut(|number| unsafe { *number += 1 });
    }

    fn counted() -> Arc<Counted> {
        Arc::new(Mutex::new(Watched::new(0)))
    }

    fn adder(mutex: &Arc<Counted>) -> JoinHandle<()> {
        let mutex = Arc::clone(mutex);
        thread::spawn(move || increment(&block_on(mutex.lock_async())))
    }

    fn count(mutex: &Counted) -> u32 {
        let guard = mutex.try_lock().expect("the mutex is unlocked");
        // SAFETY: invariant 1.
        guard.with(|number| unsafe { *number })
    }

    /// The bound keeps a model within seconds.
    fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(check);
    }

    /// Invariant 1, and no waiter sleeps beside an unlocked mutex.
    #[test]
    fn mutex_is_held_by_one_and_each_waiter_gets_it() {
        model(3, || {
            let mutex = counted();
            let others = [adder(&mutex), adder(&mutex)];
            increment(&block_on(mutex.lock_async()));
            for other in others {
                other.join().expect("adder");
            }
            assert_eq!(count(&mutex), 3);
        });
    }

    /// `try_lock` takes no wake from the waiters.
    #[test]
    fn try_lock_beside_the_line_loses_no_wake() {
        model(3, || {
            let mutex = counted();
            let other = adder(&mutex);
            let tried = mutex.try_lock().map(|guard| increment(&guard)).is_some();
            other.join().expect("adder");
            assert_eq!(count(&mutex), 1 + u32::from(tried));
        });
    }

    /// A waiter that leaves the line, woken or not, passes its wake on.
    #[test]
    fn waiter_that_leaves_passes_its_wake_on() {
        model(3, || {
            let mutex = counted();
            let held = mutex.try_lock().expect("the mutex is unlocked");
            let leaver = {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || {
                    let mut locking = pin!(mutex.lock_async());
                    let mut cx = Context::from_waker(Waker::noop());
                    let taken = locking.as_mut().poll(&mut cx).map(|guard| increment(&guard));
                    u32::from(taken.is_ready())
                })
            };
            let other = adder(&mutex);
            increment(&held);
            drop(held);
            let taken = leaver.join().expect("leaver");
            other.join().expect("adder");
            assert_eq!(count(&mutex), 2 + taken);
        });
    }
}
