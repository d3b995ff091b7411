//! A coroutine as memory: its closure, then its result, and what other threads may ask of it.
//!
//! Owns: the closure until it begins, the result until somebody takes it. Called by: `host` (which runs it), `join`
//! (which waits for it), wakers on any thread. Never does: know of stacks.
//!
//! What other threads share is one word of flags and the waker of whoever joins:
//!
//! | flag | set by | means |
//! |---|---|---|
//! | `CANCELLED` | `cancel`, anywhere | it unwinds at its next park; not begun: never begins |
//! | `KNOCKED` | a wake elsewhere | it stands in its worker's list of arrivals already |
//! | `OVER` | its worker | the result is stored |
//! | `DETACHED` | the handle's drop | nobody will take the result |
//! | `SETTLED` | the worker that takes it | it has a worker, for good |
//!
//! A cancel and a start meet in this one word: the later of the two sees the other.
//!
//! # Invariants
//! 1. The body is touched by one at a time: by the worker that has the task until `OVER`, by the handle after that,
//!    and by whoever of `OVER` and `DETACHED` comes second to drop the result.
//! 2. A closure or result that is not `Send` stays on its thread: `spawn_local` takes the task to the calling
//!    thread's worker, and a handle of a `T` that is not `Send` is not `Send`. When the body is `Empty` the memory
//!    may be dropped anywhere; the worker and the handle see to that.
//! 3. `home` is written once, by the worker that takes the task, before `SETTLED`, and read after it.

use crate::atomics::{AtomicU32, Ordering};
use crate::inbox::Inbox;
use crate::join::JoinError;
use crate::scheduler;
use atomic_waker::AtomicWaker;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

const CANCELLED: u32 = 1;
const KNOCKED: u32 = 1 << 1;
const OVER: u32 = 1 << 2;
const DETACHED: u32 = 1 << 3;
const SETTLED: u32 = 1 << 4;

/// What a coroutine is started with beside its closure.
#[derive(Debug, Default, Clone)]
pub(crate) struct SpawnOptions {
    pub name: Option<Box<str>>,
    /// Usable bytes of its stack; the runtime's own size where it says nothing.
    pub stack_bytes: Option<usize>,
}

/// The part of a task that does not depend on its closure. What a wake needs comes first, beside the counts of the
/// `Arc`: as few lines of the cache as can be.
#[repr(C)]
pub(crate) struct Header {
    flags: AtomicU32,
    /// Its number with its worker.
    slot: AtomicU32,
    /// Its worker, once it has one.
    home: UnsafeCell<Option<Arc<Inbox>>>,
    /// Who joins.
    waiter: AtomicWaker,
    pub traits: SpawnOptions,
    /// Where it was spawned.
    pub place: &'static Location<'static>,
}

impl Header {
    fn new(traits: SpawnOptions, place: &'static Location<'static>) -> Self {
        Self {
            flags: AtomicU32::new(0),
            slot: AtomicU32::new(u32::MAX),
            home: UnsafeCell::new(None),
            waiter: AtomicWaker::new(),
            traits,
            place,
        }
    }

    /// From now on it is this worker's, by this number. Returns whether it was cancelled before.
    pub fn settle(&self, home: &Arc<Inbox>, slot: u32) -> bool {
        self.slot.store(slot, Ordering::Relaxed);
        // SAFETY: invariant 3: the worker's, which calls it once.
        unsafe { *self.home.get() = Some(Arc::clone(home)) };
        self.flags.fetch_or(SETTLED, Ordering::AcqRel) & CANCELLED != 0
    }

    /// Its worker, once it has one.
    pub fn home(&self) -> Option<&Arc<Inbox>> {
        if self.flags.load(Ordering::Acquire) & SETTLED == 0 {
            return None;
        }
        // SAFETY: invariant 3.
        unsafe { &*self.home.get() }.as_ref()
    }

    pub fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    pub fn is_cancelled(&self) -> bool {
        self.flags.load(Ordering::Acquire) & CANCELLED != 0
    }

    pub fn is_over(&self) -> bool {
        self.flags.load(Ordering::Acquire) & OVER != 0
    }

    /// Have it unwind; returns whether its worker has to be told: not of one without a worker, which will see it.
    pub fn mark_cancelled(&self) -> bool {
        let before = self.flags.fetch_or(CANCELLED, Ordering::AcqRel);
        before & (CANCELLED | OVER | SETTLED) == SETTLED
    }

    /// On another thread than its worker's: returns whether the caller has to tell the worker.
    fn knock(&self) -> bool {
        self.flags.fetch_or(KNOCKED, Ordering::AcqRel) & (KNOCKED | OVER) == 0
    }

    /// The worker was told: later knocks tell it again.
    pub fn answer(&self) {
        self.flags.fetch_and(!KNOCKED, Ordering::AcqRel);
    }

    /// The result is stored; returns whether the handle was gone before.
    fn mark_over(&self) -> bool {
        self.flags.fetch_or(OVER, Ordering::AcqRel) & DETACHED != 0
    }

    /// The handle is gone; returns whether the result was stored before.
    fn mark_detached(&self) -> bool {
        self.flags.fetch_or(DETACHED, Ordering::AcqRel) & OVER != 0
    }

    pub fn register(&self, waiter: &Waker) {
        self.waiter.register(waiter);
    }
}

/// Its name and where it was spawned.
impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.traits.name {
            f.write_str("'")?;
            f.write_str(name)?;
            f.write_str("' ")?;
        }
        write!(
            f,
            "(spawned at {}:{})",
            self.place.file(),
            self.place.line()
        )
    }
}

/// A task of any closure.
pub(crate) trait Runnable: Send + Sync {
    fn head(&self) -> &Header;

    fn waker(self: Arc<Self>) -> Waker;

    /// Run the closure to its end and store what came of it. By the worker, on the coroutine's stack, once.
    fn run(&self);

    /// Give the closure up and store why. By the worker, in place of `run`.
    fn refuse(&self, error: JoinError);

    /// The result is stored: tell who waits. By the worker, last.
    fn finish(&self);
}

/// Have a coroutine unwind; see `JoinHandle::cancel`.
pub(crate) fn cancel(task: &Arc<dyn Runnable>) {
    if task.head().mark_cancelled() {
        Arc::clone(task).waker().wake();
    }
}

/// A task as its handle sees it.
pub(crate) trait Joinable<T>: Runnable {
    /// The result, once, of a task that is over. By the handle.
    fn take(&self) -> Option<Result<T, JoinError>>;

    /// The handle is gone.
    fn detach(&self);
}

enum Body<F, T> {
    Closure(F),
    Result(Result<T, JoinError>),
    Empty,
}

#[repr(C)]
pub(crate) struct Task<F, T> {
    head: Header,
    body: UnsafeCell<Body<F, T>>,
}

// SAFETY: invariants 1 and 2.
unsafe impl<F, T> Send for Task<F, T> {}
// SAFETY: invariants 1 and 2.
unsafe impl<F, T> Sync for Task<F, T> {}

impl<F, T> Task<F, T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    pub fn new(traits: SpawnOptions, place: &'static Location<'static>, closure: F) -> Arc<Self> {
        Arc::new(Self {
            head: Header::new(traits, place),
            body: UnsafeCell::new(Body::Closure(closure)),
        })
    }

    /// # Safety
    /// Invariant 1.
    unsafe fn replace(&self, body: Body<F, T>) -> Body<F, T> {
        // SAFETY: as the caller says.
        std::mem::replace(unsafe { &mut *self.body.get() }, body)
    }
}

impl<F, T> Runnable for Task<F, T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    fn head(&self) -> &Header {
        &self.head
    }

    fn waker(self: Arc<Self>) -> Waker {
        Waker::from(self)
    }

    fn run(&self) {
        // SAFETY: invariant 1: the worker's.
        let Body::Closure(closure) = (unsafe { self.replace(Body::Empty) }) else {
            return;
        };
        let result = catch_unwind(AssertUnwindSafe(closure)).map_err(JoinError::from_payload);
        // SAFETY: invariant 1: not over.
        unsafe { self.replace(Body::Result(result)) };
    }

    fn refuse(&self, error: JoinError) {
        // SAFETY: invariant 1: the worker's.
        let closure = unsafe { self.replace(Body::Empty) };
        let error = match catch_unwind(AssertUnwindSafe(|| drop(closure))) {
            Ok(()) => error,
            Err(payload) => JoinError::from_payload(payload),
        };
        // SAFETY: invariant 1: not over.
        unsafe { self.replace(Body::Result(Err(error))) };
    }

    fn finish(&self) {
        if !self.head.mark_over() {
            self.head.waiter.wake();
            return;
        }
        // SAFETY: invariant 1: the second of the two.
        let result = unsafe { self.replace(Body::Empty) };
        // A drop that panics has told the panic hook; there is nobody else to tell.
        drop(catch_unwind(AssertUnwindSafe(|| drop(result))));
    }
}

impl<F, T> Joinable<T> for Task<F, T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    fn take(&self) -> Option<Result<T, JoinError>> {
        if !self.head.is_over() {
            return None;
        }
        // SAFETY: invariant 1: over, and the handle's.
        match unsafe { self.replace(Body::Empty) } {
            Body::Result(result) => Some(result),
            Body::Closure(_) | Body::Empty => None,
        }
    }

    fn detach(&self) {
        if self.head.mark_detached() {
            drop(self.take());
        }
    }
}

impl<F, T> Wake for Task<F, T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if scheduler::wake_here(&self.head) || !self.head.knock() {
            return;
        }
        // A task without a home has not begun, and no waker.
        if let Some(home) = self.head.home() {
            // A worker that is gone has ended its coroutines.
            drop(home.send(Arc::clone(self) as Arc<dyn Runnable>));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn task<T: 'static>(closure: impl FnOnce() -> T + 'static) -> Arc<dyn Joinable<T>> {
        Task::new(SpawnOptions::default(), Location::caller(), closure)
    }

    #[test]
    fn invariant_1_result_is_dropped_once_whoever_comes_second() {
        for handle_first in [true, false] {
            let result = Rc::new(());
            let given = Rc::clone(&result);
            let task = task(move || given);
            task.run();
            assert_eq!(Rc::strong_count(&result), 2);
            let steps: [&dyn Fn(); 2] = [&|| task.detach(), &|| task.finish()];
            steps[usize::from(!handle_first)]();
            assert_eq!(Rc::strong_count(&result), 2);
            steps[usize::from(handle_first)]();
            assert_eq!(Rc::strong_count(&result), 1);
            assert!(task.take().is_none());
        }
    }

    #[test]
    fn invariant_1_result_is_not_to_be_had_before_the_end() {
        let task = task(|| 3);
        task.run();
        assert!(task.take().is_none());
        task.finish();
        assert!(matches!(task.take(), Some(Ok(3))));
        assert!(task.take().is_none());
    }

    #[test]
    fn invariant_2_memory_without_a_body_is_dropped_anywhere() {
        let result = Rc::new(());
        let given = Rc::clone(&result);
        let task = task(move || given);
        let waker = (Arc::clone(&task) as Arc<dyn Runnable>).waker();
        task.run();
        task.finish();
        drop(task.take());
        drop(task);
        std::thread::spawn(move || drop(waker))
            .join()
            .expect("no panic");
        assert_eq!(Rc::strong_count(&result), 1);
    }

    #[test]
    fn invariant_3_home_is_there_once_it_is_settled() {
        let task = task(|| ());
        assert!(task.head().home().is_none());
        let door = Arc::default();
        assert!(!task.head().settle(&door, 7));
        assert!(
            task.head()
                .home()
                .is_some_and(|home| Arc::ptr_eq(home, &door))
        );
        assert_eq!(task.head().slot(), 7);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    fn head() -> loom::sync::Arc<Header> {
        loom::sync::Arc::new(Header::new(SpawnOptions::default(), Location::caller()))
    }

    /// A cancel and the worker that takes the task: the later of the two sees the other.
    #[test]
    fn cancel_is_seen_or_told() {
        loom::model(|| {
            let head = head();
            let canceller = {
                let head = head.clone();
                thread::spawn(move || head.mark_cancelled())
            };
            let seen = head.settle(&Arc::default(), 1);
            let told = canceller.join().expect("canceller");
            assert!(seen != told, "seen {seen}, told {told}");
        });
    }

    /// The end and the drop of the handle: the later of the two drops the result.
    #[test]
    fn result_is_dropped_by_one() {
        loom::model(|| {
            let head = head();
            let handle = {
                let head = head.clone();
                thread::spawn(move || head.mark_detached())
            };
            let by_worker = head.mark_over();
            let by_handle = handle.join().expect("handle");
            assert!(by_worker != by_handle);
        });
    }

    /// A wake from another thread is never lost, and never sent twice.
    #[test]
    fn knock_is_answered_and_sent_once() {
        loom::model(|| {
            let head = head();
            let data = loom::sync::Arc::new(AtomicU32::new(0));
            let inbox = loom::sync::Arc::new(AtomicU32::new(0));
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let (head, data, inbox) = (head.clone(), data.clone(), inbox.clone());
                    thread::spawn(move || {
                        data.fetch_add(1, Ordering::Relaxed);
                        if head.knock() {
                            assert_eq!(inbox.fetch_add(1, Ordering::AcqRel), 0, "sent twice");
                        }
                    })
                })
                .collect();
            let mut seen = 0;
            let mut turn = || {
                if inbox.load(Ordering::Acquire) > 0 {
                    inbox.fetch_sub(1, Ordering::AcqRel);
                    head.answer();
                    seen = data.load(Ordering::Relaxed);
                }
            };
            turn();
            for waker in wakers {
                waker.join().expect("waker");
            }
            turn();
            assert_eq!(seen, 2, "a wake was lost");
        });
    }
}
