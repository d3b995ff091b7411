//! A lock that parks: a word of three states, and a line of those who found it taken.
//!
//! Owns: the value. Never does: poison.
//!
//! ```text
//!   FREE ──────── lock ───────▶ HELD ── somebody stands in the line ──▶ AWAITED ─┐
//!    ▲                           │                                       │    ▲  │ unlock: give it to a first
//!    └────────── unlock ─────────┴───────── unlock: wake the first ──────┘    └──┘ that was passed too often
//! ```
//! Who was in the line takes the lock as `AWAITED`, since others may be behind it; at worst one looks at an empty line.
//!
//! Whoever comes first takes a free lock, and the first in the line is woken to try again, as std does: a lock that is
//! handed over at once costs a switch each time. But one that holds it across its waits, and takes it again without one,
//! would keep it from all others of its thread for ever. So after [`limits::LOCK_PASSES_MAX`] vain tries the first in the
//! line is given the lock.
//!
//! # Invariants
//! 1. Whoever has changed the word from `FREE`, or was given the lock by who had, has the value alone until it changes it
//!    back or gives it away; a guard does both, or [`LockFuture`] for as long as it has not taken what it was given.

use super::waiters::{Ticket, Waiters};
use crate::atomics::{AtomicU32, Mutex as Line, Ordering};
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
    line: Line<LockQueue>,
    value: UnsafeCell<T>,
}

/// Who waits for the lock.
struct LockQueue {
    waiters: Waiters,
    /// The first in the line, if it was passed too often.
    passed: Option<Ticket>,
    /// Has the lock, and does not know it yet.
    given: Option<Ticket>,
}

impl LockQueue {
    const fn new() -> Self {
        Self {
            waiters: Waiters::new(),
            passed: None,
            given: None,
        }
    }

    /// Take what one was given.
    fn accept(&mut self, ticket: Option<Ticket>) -> bool {
        let is_given = ticket.is_some() && self.given == ticket;
        if is_given {
            self.given = None;
        }
        is_given
    }
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
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            line: Line::new(LockQueue::new()),
            value: UnsafeCell::new(value),
        }
    }

    /// A value that nobody holds; loom's atomics are no constants.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            line: Line::new(LockQueue::new()),
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

    /// Hold the lock, as a future: for `select!` and async code.
    ///
    /// Cancel safety: safe.
    pub fn lock_async(&self) -> impl Future<Output = MutexGuard<'_, T>> {
        LockFuture {
            mutex: self,
            ticket: None,
            passes: 0,
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

    /// Look at the line, or change it.
    fn in_line<R>(&self, work: impl FnOnce(&mut LockQueue) -> R) -> R {
        // It is whole at any point; a panic elsewhere does not change that.
        work(&mut self.line.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[cold]
    fn wake_first(&self) {
        let first = self.in_line(|queue| queue.waiters.first());
        if let Some(waker) = first {
            waker.wake();
        }
    }

    /// Unlock what somebody waits for: give it to the first in the line, or free it and let that one try.
    #[cold]
    fn pass_on(&self) {
        let first = self.in_line(|queue| {
            let front = queue.waiters.front();
            if front.is_some() && queue.passed == front {
                queue.given = queue.passed.take();
            } else {
                // No plain store: loom takes that for older than a swap which it follows.
                self.word.swap(FREE, Ordering::Release);
            }
            queue.waiters.first()
        });
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

struct LockFuture<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    ticket: Option<Ticket>,
    /// Tries for which it was woken, and in vain.
    passes: u32,
}

impl<'a, T: ?Sized> Future for LockFuture<'a, T> {
    type Output = MutexGuard<'a, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mutex = this.mutex;
        // In the line first: whoever unlocks after the word says so finds it there.
        let is_given = mutex.in_line(|queue| {
            let is_given = queue.accept(this.ticket);
            if !is_given {
                this.stand(queue, cx.waker());
            }
            is_given
        });
        if is_given {
            self.ticket = None;
            return Poll::Ready(mutex.guard());
        }
        let Some(guard) = mutex.try_lock_awaited() else {
            return Poll::Pending;
        };
        if let Some(ticket) = self.ticket.take() {
            // Whether it was woken or not: it has what it waited for, and wakes the next when it is done.
            mutex.in_line(|queue| queue.waiters.leave(ticket));
        }
        Poll::Ready(guard)
    }
}

impl<T: ?Sized> LockFuture<'_, T> {
    fn stand(&mut self, queue: &mut LockQueue, waker: &Waker) {
        let was_woken = self
            .ticket
            .is_some_and(|ticket| !queue.waiters.stands(ticket));
        self.passes += u32::from(was_woken);
        queue.waiters.stand(&mut self.ticket, waker);
        if self.passes >= limits::LOCK_PASSES_MAX && queue.waiters.front() == self.ticket {
            queue.passed = self.ticket;
        }
    }
}

impl<T: ?Sized> Drop for LockFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let (is_given, stood) = self
                .mutex
                .in_line(|queue| (queue.accept(Some(ticket)), queue.waiters.leave(ticket)));
            if is_given {
                drop(self.mutex.guard());
            } else if !stood {
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
        let (freed, seen) = (Ordering::Release, Ordering::Relaxed);
        let exchanged = self.mutex.word.compare_exchange(HELD, FREE, freed, seen);
        if exchanged.is_err() {
            self.mutex.pass_on();
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

    /// A number of which loom sees who touches it.
    type Counted = Mutex<Watched<u32>>;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Wait as a thread does; where no wake comes loom finds the deadlock.
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
        let guard = mutex.try_lock().expect("a lock that nobody holds is free");
        // SAFETY: invariant 1.
        guard.with(|number| unsafe { *number })
    }

    /// The bounds keep a model within seconds.
    fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(check);
    }

    /// Invariant 1, and nobody sleeps beside a free lock.
    #[test]
    fn mutex_is_held_by_one_and_each_who_waits_gets_it() {
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

    /// One that tries without waiting takes nothing from those in the line.
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

    /// Whoever goes away from the line, woken or not, leaves the lock to the next.
    #[test]
    fn one_that_leaves_the_line_passes_its_wake_on() {
        model(3, || {
            let mutex = counted();
            let held = mutex.try_lock().expect("nobody else is there yet");
            let leaver = {
                let mutex = Arc::clone(&mutex);
                thread::spawn(move || {
                    let mut locking = pin!(mutex.lock_async());
                    let mut cx = Context::from_waker(Waker::noop());
                    let taken = locking
                        .as_mut()
                        .poll(&mut cx)
                        .map(|guard| increment(&guard));
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
