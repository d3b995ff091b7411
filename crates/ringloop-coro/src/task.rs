//! A coroutine's task: its closure, then its result, and the state that threads share.
//!
//! Owns: the closure until it begins, the result until it is taken. Called by: `scheduler` (runs
//! it), `join` (takes the result), wakers on any thread. It knows no stack and no scheduler, only
//! [`Schedule`].
//!
//! Threads share one word of flags and the waker of the joiner:
//!
//! | flag | set by | means |
//! |---|---|---|
//! | `CANCELLED` | `cancel`, on any thread | unwind at the next park, or never begin |
//! | `NOTIFIED` | a remote wake | the task is in its scheduler's inbox |
//! | `FINISHED` | the scheduler | the result is stored |
//! | `DETACHED` | the handle's drop | the result will not be taken |
//! | `BOUND` | the scheduler that takes it | the task has its scheduler, for good |
//!
//! Cancelling and binding meet in this word: the later of the two sees the other.
//!
//! # Invariants
//! 1. The body has one user at a time: the scheduler until `FINISHED`, the handle after that; of
//!    `FINISHED` and `DETACHED` the second to be set drops the result.
//! 2. A closure or result that is not `Send` stays on its thread: `spawn_local` binds the task to
//!    the calling thread's scheduler, and a handle of a `T` that is not `Send` is not `Send`. A
//!    body that is `Empty` may be dropped on any thread.
//! 3. `scheduler` is written once, by the scheduler that takes the task, before `BOUND`, and read
//!    after it.

use crate::atomics::{AtomicU32, Ordering};
use crate::error::{JoinError, join_error};
use atomic_waker::AtomicWaker;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::task::{Wake, Waker};

const CANCELLED: u32 = 1;
const NOTIFIED: u32 = 1 << 1;
const FINISHED: u32 = 1 << 2;
const DETACHED: u32 = 1 << 3;
const BOUND: u32 = 1 << 4;

/// A scheduler, as the wakers of its tasks see it.
pub(crate) trait Schedule: Send + Sync {
    /// Makes the task ready if the calling thread is the scheduler's. `false` on any other thread.
    fn wake_local(&self, task: &Header) -> bool;

    /// Sends the task to the scheduler's thread, which wakes it there.
    fn wake_remote(&self, task: Arc<dyn Runnable>);
}

/// Settings of a coroutine.
#[derive(Debug, Default, Clone)]
pub(crate) struct SpawnOptions {
    pub name: Option<Box<str>>,
    /// Usable bytes of its stack; `None`: the runtime's size.
    pub stack_bytes: Option<usize>,
}

/// The part of a task that does not depend on its closure. The fields of a wake come first, next
/// to the counts of the `Arc`, to touch few cache lines.
#[repr(C)]
pub(crate) struct Header {
    flags: AtomicU32,
    /// Index in its scheduler's table.
    slot: AtomicU32,
    scheduler: UnsafeCell<Option<Arc<dyn Schedule>>>,
    joiner: AtomicWaker,
    pub options: SpawnOptions,
    pub spawned_at: &'static Location<'static>,
}

impl Header {
    fn new(options: SpawnOptions, spawned_at: &'static Location<'static>) -> Self {
        Self {
            flags: AtomicU32::new(0),
            slot: AtomicU32::new(u32::MAX),
            scheduler: UnsafeCell::new(None),
            joiner: AtomicWaker::new(),
            options,
            spawned_at,
        }
    }

    /// Binds the task to `scheduler`, for good. Returns whether it was cancelled before.
    pub fn bind(&self, scheduler: Arc<dyn Schedule>, slot: u32) -> bool {
        self.slot.store(slot, Ordering::Relaxed);
        // SAFETY: invariant 3: the scheduler calls it once.
        unsafe { *self.scheduler.get() = Some(scheduler) };
        self.flags.fetch_or(BOUND, Ordering::AcqRel) & CANCELLED != 0
    }

    fn scheduler(&self) -> Option<&dyn Schedule> {
        if !self.is_bound() {
            return None;
        }
        // SAFETY: invariant 3.
        unsafe { &*self.scheduler.get() }.as_deref()
    }

    pub fn is_bound(&self) -> bool {
        self.flags.load(Ordering::Acquire) & BOUND != 0
    }

    pub fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    pub fn is_cancelled(&self) -> bool {
        self.flags.load(Ordering::Acquire) & CANCELLED != 0
    }

    pub fn is_finished(&self) -> bool {
        self.flags.load(Ordering::Acquire) & FINISHED != 0
    }

    /// Marks the task cancelled. Returns whether it has to be woken: an unbound task has no
    /// scheduler yet, which will see the flag.
    pub fn set_cancelled(&self) -> bool {
        let before = self.flags.fetch_or(CANCELLED, Ordering::AcqRel);
        before & (CANCELLED | FINISHED | BOUND) == BOUND
    }

    /// Returns whether the caller has to send the task to its scheduler.
    fn set_notified(&self) -> bool {
        self.flags.fetch_or(NOTIFIED, Ordering::AcqRel) & (NOTIFIED | FINISHED) == 0
    }

    /// The scheduler has received the task: later remote wakes send it again.
    pub fn clear_notified(&self) {
        self.flags.fetch_and(!NOTIFIED, Ordering::AcqRel);
    }

    /// Returns whether the handle was dropped before.
    fn set_finished(&self) -> bool {
        self.flags.fetch_or(FINISHED, Ordering::AcqRel) & DETACHED != 0
    }

    /// Returns whether the result was stored before.
    fn set_detached(&self) -> bool {
        self.flags.fetch_or(DETACHED, Ordering::AcqRel) & FINISHED != 0
    }

    /// Registers the waker to call when the task is finished.
    pub fn register(&self, joiner: &Waker) {
        self.joiner.register(joiner);
    }
}

/// The coroutine's name and where it was spawned.
impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.options.name {
            write!(f, "'{name}' ")?;
        }
        let (file, line) = (self.spawned_at.file(), self.spawned_at.line());
        write!(f, "(spawned at {file}:{line})")
    }
}

/// A task of any closure.
pub(crate) trait Runnable: Send + Sync {
    fn header(&self) -> &Header;

    fn waker(self: Arc<Self>) -> Waker;

    /// Runs the closure to its end and stores the result. By the scheduler, on the coroutine's
    /// stack, once.
    fn run(&self);

    /// Drops the closure and stores `error` as the result. By the scheduler, in place of `run`.
    fn fail(&self, error: JoinError);

    /// Publishes the stored result and wakes the joiner. By the scheduler, last.
    fn finish(&self);
}

/// Has a coroutine unwind; see `JoinHandle::cancel`.
pub(crate) fn cancel(task: &Arc<dyn Runnable>) {
    if task.header().set_cancelled() {
        Arc::clone(task).waker().wake();
    }
}

/// Ends a task that will not begin as cancelled.
pub(crate) fn reject(task: &dyn Runnable) {
    task.fail(JoinError::Cancelled);
    task.finish();
}

/// A task as its handle sees it.
pub(crate) trait Joinable<T>: Runnable {
    /// Takes the result of a finished task, once.
    fn take(&self) -> Option<Result<T, JoinError>>;

    /// The handle is dropped.
    fn detach(&self);
}

enum Body<F, T> {
    Closure(F),
    Result(Result<T, JoinError>),
    Empty,
}

#[repr(C)]
pub(crate) struct Task<F, T> {
    header: Header,
    body: UnsafeCell<Body<F, T>>,
}

// SAFETY: invariants 1 and 2.
unsafe impl<F, T> Send for Task<F, T> {}
// SAFETY: invariants 1 and 2.
unsafe impl<F, T> Sync for Task<F, T> {}

impl<F, T> Task<F, T> {
    pub fn new(
        options: SpawnOptions,
        spawned_at: &'static Location<'static>,
        closure: F,
    ) -> Arc<Self> {
        Arc::new(Self {
            header: Header::new(options, spawned_at),
            body: UnsafeCell::new(Body::Closure(closure)),
        })
    }

    /// # Safety
    /// Invariant 1.
    unsafe fn replace(&self, body: Body<F, T>) -> Body<F, T> {
        // SAFETY: the caller's.
        std::mem::replace(unsafe { &mut *self.body.get() }, body)
    }
}

impl<T: 'static, F: FnOnce() -> T + 'static> Runnable for Task<F, T> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn waker(self: Arc<Self>) -> Waker {
        Waker::from(self)
    }

    fn run(&self) {
        // SAFETY: invariant 1: the scheduler's.
        let Body::Closure(closure) = (unsafe { self.replace(Body::Empty) }) else {
            return;
        };
        let result = catch_unwind(AssertUnwindSafe(closure)).map_err(join_error);
        // SAFETY: invariant 1: not finished.
        unsafe { self.replace(Body::Result(result)) };
    }

    fn fail(&self, error: JoinError) {
        // SAFETY: invariant 1: the scheduler's.
        let closure = unsafe { self.replace(Body::Empty) };
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(closure)));
        let error = dropped.map_or_else(join_error, |()| error);
        // SAFETY: invariant 1: not finished.
        unsafe { self.replace(Body::Result(Err(error))) };
    }

    fn finish(&self) {
        if !self.header.set_finished() {
            self.header.joiner.wake();
            return;
        }
        // SAFETY: invariant 1: the second of the two.
        let result = unsafe { self.replace(Body::Empty) };
        // The panic hook has reported a drop that panics; no handle is left to report it to.
        drop(catch_unwind(AssertUnwindSafe(|| drop(result))));
    }
}

impl<T: 'static, F: FnOnce() -> T + 'static> Joinable<T> for Task<F, T> {
    fn take(&self) -> Option<Result<T, JoinError>> {
        if !self.header.is_finished() {
            return None;
        }
        // SAFETY: invariant 1: finished, and the handle's.
        match unsafe { self.replace(Body::Empty) } {
            Body::Result(result) => Some(result),
            Body::Closure(_) | Body::Empty => None,
        }
    }

    fn detach(&self) {
        if self.header.set_detached() {
            drop(self.take());
        }
    }
}

impl<T: 'static, F: FnOnce() -> T + 'static> Wake for Task<F, T> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // An unbound task has not begun, and has no waker.
        if let Some(scheduler) = self.header.scheduler()
            && !scheduler.wake_local(&self.header)
            && self.header.set_notified()
        {
            scheduler.wake_remote(Arc::clone(self) as Arc<dyn Runnable>);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;

    struct OtherThread;

    impl Schedule for OtherThread {
        fn wake_local(&self, _: &Header) -> bool {
            false
        }

        fn wake_remote(&self, task: Arc<dyn Runnable>) {
            task.header().slot.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn task<T: 'static>(closure: impl FnOnce() -> T + 'static) -> Arc<dyn Joinable<T>> {
        Task::new(SpawnOptions::default(), Location::caller(), closure)
    }

    #[test]
    fn invariant_1_second_of_finish_and_detach_drops_the_result() {
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
    fn invariant_1_result_is_taken_once_and_only_after_finish() {
        let task = task(|| 3);
        task.run();
        assert!(task.take().is_none());
        task.finish();
        assert!(matches!(task.take(), Some(Ok(3))));
        assert!(task.take().is_none());
    }

    #[test]
    fn invariant_2_task_with_empty_body_is_dropped_on_any_thread() {
        let result = Rc::new(());
        let given = Rc::clone(&result);
        let task = task(move || given);
        let waker = (Arc::clone(&task) as Arc<dyn Runnable>).waker();
        task.run();
        task.finish();
        drop(task.take());
        drop(task);
        let dropped = std::thread::spawn(move || drop(waker)).join();
        dropped.expect("no panic");
        assert_eq!(Rc::strong_count(&result), 1);
    }

    #[test]
    fn invariant_3_scheduler_is_seen_once_bound() {
        let task = task(|| ());
        assert!(task.header().scheduler().is_none());
        assert!(!task.header().bind(Arc::new(OtherThread), 7));
        assert!(task.header().scheduler().is_some());
        assert_eq!(task.header().slot(), 7);
    }

    #[test]
    fn remote_wakes_send_a_task_once_until_it_is_received() {
        let task = task(|| ());
        task.header().bind(Arc::new(OtherThread), 0);
        let waker = (Arc::clone(&task) as Arc<dyn Runnable>).waker();
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(task.header().slot(), 1);
        task.header().clear_notified();
        waker.wake();
        assert_eq!(task.header().slot(), 2);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    struct NoScheduler;

    impl Schedule for NoScheduler {
        fn wake_local(&self, _: &Header) -> bool {
            false
        }

        fn wake_remote(&self, _: Arc<dyn Runnable>) {}
    }

    fn header() -> loom::sync::Arc<Header> {
        loom::sync::Arc::new(Header::new(SpawnOptions::default(), Location::caller()))
    }

    /// Of a cancel and the binding to a scheduler, the later sees the other.
    #[test]
    fn cancel_is_seen_by_bind_or_wakes_the_task() {
        loom::model(|| {
            let header = header();
            let canceller = {
                let header = header.clone();
                thread::spawn(move || header.set_cancelled())
            };
            let seen = header.bind(Arc::new(NoScheduler), 1);
            let wakes = canceller.join().expect("canceller");
            assert!(seen != wakes, "seen {seen}, wakes {wakes}");
        });
    }

    /// Of the end and the drop of the handle, the later drops the result.
    #[test]
    fn result_is_dropped_by_the_later_of_two() {
        loom::model(|| {
            let header = header();
            let handle = {
                let header = header.clone();
                thread::spawn(move || header.set_detached())
            };
            let by_scheduler = header.set_finished();
            let by_handle = handle.join().expect("handle");
            assert!(by_scheduler != by_handle);
        });
    }

    /// A remote wake is never lost, and never sent twice.
    #[test]
    fn remote_wake_is_received_and_sent_once() {
        loom::model(|| {
            let header = header();
            let data = loom::sync::Arc::new(AtomicU32::new(0));
            let inbox = loom::sync::Arc::new(AtomicU32::new(0));
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let (header, data, inbox) = (header.clone(), data.clone(), inbox.clone());
                    thread::spawn(move || {
                        data.fetch_add(1, Ordering::Relaxed);
                        if header.set_notified() {
                            assert_eq!(inbox.fetch_add(1, Ordering::AcqRel), 0, "sent twice");
                        }
                    })
                })
                .collect();
            let mut seen = 0;
            let mut turn = || {
                if inbox.load(Ordering::Acquire) > 0 {
                    inbox.fetch_sub(1, Ordering::AcqRel);
                    header.clear_notified();
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
