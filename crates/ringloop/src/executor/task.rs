//! One task: its future, its result, and the wakers that put it in its loop's queue.
//!
//! Owns: the memory of a task, one allocation from its start to the last reference to it.
//! Called by: `local` (which runs tasks), `join` (which waits for them) and wakers on any thread.
//! Never does: touch the future, or the result, from any thread but the loop's.
//!
//! ```text
//!            wake, here or by the inbox        taken off the queue
//!   Idle ─────────────────────────────▶ Queued ──────────────────▶ Running ──ready──▶ Over
//!    ▲                                    ▲                          │   │
//!    │                                    └──pending, woken ─────────┤   └ a panic, an abort: Over too
//!    └───────────────────────────────────────pending─────────────────┘
//! ```
//! Everything on the picture is plain memory of the loop's thread (`Here`). What other threads share
//! is two atomics: the count of wakers (`count`), and one flag that says a wake is on its way in the
//! loop's inbox (`Knock`), so that a hundred wakes from elsewhere send one message.
//!
//! # Invariants
//! 1. A task's memory is freed once, when it is over, out of the queue, without a handle, and its last
//!    waker is gone: so a `TaskRef` in the queue or on the list of tasks, a `Handle` and a waker name
//!    memory.
//! 2. The stage, which holds the future or the result, is touched on the loop's thread only, and by one
//!    caller at a time: by `poll` and `cancel` while the task is not over, by the handle after that.
//! 3. The functions of a `VTable` are of the future type that the task was made with.
//! 4. A future is not moved until it is dropped.
//! 5. A task's hub lives as long as the task's memory: together the tasks hold one count of its `Arc`.

use super::count::SplitCount;
use super::hub::Hub;
use super::join::JoinError;
use super::sync::{AtomicBool, Ordering};
use std::cell::{Cell, UnsafeCell};
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Queued,
    Running,
    /// Running, and to be queued again after that.
    Woken,
    Over,
}

/// What the loop's thread keeps of a task.
struct Here {
    phase: Cell<Phase>,
    /// It stands in the ready queue; also one that was cancelled there.
    queued: Cell<bool>,
    /// Somebody may ask for the result.
    handle: Cell<bool>,
    aborted: Cell<bool>,
    /// Who waits for the result.
    waiter: Cell<Option<Waker>>,
    /// Its place on the list of all tasks.
    slot: Cell<u32>,
}

/// Whether a wake from another thread is on its way in the inbox.
#[derive(Debug)]
struct Knock(AtomicBool);

impl Knock {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// On another thread: returns whether the caller has to send the message.
    fn raise(&self) -> bool {
        // A swap also where it is raised: it publishes the waker's writes to whoever answers.
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// The message has arrived: later knocks send one of their own.
    fn answer(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}

/// The part of a task that does not depend on its future's type.
struct Header {
    vtable: &'static VTable,
    hub: NonNull<Hub>,
    /// How many wakers there are, and what the loop's thread keeps.
    wakers: SplitCount<Here>,
    knock: Knock,
}

struct VTable {
    /// Poll the future; returns whether the task is over, with its result stored.
    poll: unsafe fn(NonNull<Header>) -> bool,
    /// Drop the future, and store that it was aborted.
    cancel: unsafe fn(NonNull<Header>),
    /// Move the result to an `Option<Result<T, JoinError>>`.
    take: unsafe fn(NonNull<Header>, *mut ()),
    free: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Task<F: Future> {
    header: Header,
    stage: UnsafeCell<Stage<F>>,
}

enum Stage<F: Future> {
    Future(F),
    Result(Result<F::Output, JoinError>),
    Empty,
}

/// Make a task, queued, and on the list of all; its loop is the calling thread's.
pub(super) fn start<F>(hub: &Arc<Hub>, future: F) -> Handle<F::Output>
where
    F: Future + 'static,
{
    let here = Here {
        phase: Cell::new(Phase::Queued),
        queued: Cell::new(true),
        handle: Cell::new(true),
        aborted: Cell::new(false),
        waiter: Cell::new(None),
        slot: Cell::new(u32::MAX),
    };
    let header = Header {
        vtable: &VTable {
            poll: poll::<F>,
            cancel: cancel::<F>,
            take: take::<F>,
            free: free::<F>,
        },
        hub: NonNull::from(&**hub),
        wakers: SplitCount::new(here),
        knock: Knock::new(),
    };
    let task = Box::new(Task {
        header,
        stage: UnsafeCell::new(Stage::Future(future)),
    });
    hub.cells.add();
    let task = TaskRef(NonNull::from(Box::leak(task)).cast());
    if let (Some(here), Some(slot)) = (task.here(), hub.insert(task)) {
        here.slot.set(slot);
    }
    hub.push_ready(task);
    Handle {
        task,
        result: PhantomData,
    }
}

/// Let the tasks hold a count of their hub (invariant 5).
pub(super) fn open_hub(hub: &Arc<Hub>) {
    std::mem::forget(Arc::clone(hub));
}

/// Give that count up: now, or when the last task's memory is freed.
pub(super) fn close_hub(hub: &Arc<Hub>) {
    if hub.cells.close() {
        // SAFETY: invariant 5; it is the count of `open_hub`, and no task is left to use it.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(hub)) };
    }
}

/// A task by name, for the queue and the list of tasks (invariant 1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskRef(NonNull<Header>);

// SAFETY: what a task's own thread alone may touch is behind `Owned` (in the count); the rest is for every thread.
unsafe impl Send for TaskRef {}

impl std::fmt::Debug for TaskRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({:p})", self.0)
    }
}

impl TaskRef {
    fn header(&self) -> &Header {
        // SAFETY: invariant 1.
        unsafe { self.0.as_ref() }
    }

    fn here(&self) -> Option<&Here> {
        self.header().wakers.here()
    }

    fn hub(&self) -> &Hub {
        // SAFETY: invariant 5.
        unsafe { self.header().hub.as_ref() }
    }

    /// Poll the future; the loop has taken the task off its queue.
    pub fn run(self) {
        let Some(here) = self.here() else {
            return;
        };
        here.queued.set(false);
        if here.phase.get() == Phase::Over {
            // Cancelled while it was queued.
            self.release();
            return;
        }
        here.phase.set(Phase::Running);
        // SAFETY: invariant 3; invariant 2: not over, and `Running` keeps everybody else away.
        if unsafe { (self.header().vtable.poll)(self.0) } {
            self.end();
        } else if here.phase.replace(Phase::Idle) == Phase::Woken {
            self.wake_here(here);
        }
    }

    /// Drop the future; its handle is told. Returns whether it was done: not to a running task.
    pub fn cancel(self) -> bool {
        let Some(here) = self.here() else {
            return false;
        };
        if !matches!(here.phase.get(), Phase::Idle | Phase::Queued) {
            return false;
        }
        here.phase.set(Phase::Running);
        // SAFETY: invariant 3; invariant 2, as in `run`.
        unsafe { (self.header().vtable.cancel)(self.0) };
        self.end();
        true
    }

    /// The result is stored: tell who waits, last, since that may call back.
    fn end(self) {
        let Some(here) = self.here() else {
            return;
        };
        here.phase.set(Phase::Over);
        self.hub().remove(here.slot.get());
        let waiter = here.waiter.take();
        self.release();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    fn wake_here(self, here: &Here) {
        match here.phase.get() {
            Phase::Idle => {
                here.phase.set(Phase::Queued);
                here.queued.set(true);
                self.hub().push_ready(self);
            }
            Phase::Running => here.phase.set(Phase::Woken),
            Phase::Queued | Phase::Woken | Phase::Over => {}
        }
    }

    fn wake(self) {
        match self.here() {
            Some(here) => self.wake_here(here),
            None if self.header().knock.raise() => {
                self.header().wakers.add();
                self.hub().send_wake(RemoteWake(self));
            }
            None => {}
        }
    }

    /// Free the memory if nothing but wakers was left, and they are gone; else they do (invariant 1).
    fn release(self) {
        let Some(here) = self.here() else {
            return;
        };
        let held = here.handle.get() || here.queued.get() || here.phase.get() != Phase::Over;
        if !held && self.header().wakers.close() {
            self.free();
        }
    }

    fn free(self) {
        let header = self.header();
        let (hub, free) = (header.hub, header.vtable.free);
        // SAFETY: invariant 3; invariant 1: the caller has found the last reference gone.
        unsafe { free(self.0) };
        // SAFETY: invariant 5: this task has counted until here.
        if unsafe { hub.as_ref() }.cells.sub() {
            // SAFETY: invariant 5; the hub was closed, and this was the last task.
            unsafe { Arc::decrement_strong_count(hub.as_ptr()) };
        }
    }

    fn drop_waker(self) {
        if self.header().wakers.sub() {
            self.free();
        }
    }
}

/// A wake on its way to the loop; counts as a waker.
#[derive(Debug)]
pub(super) struct RemoteWake(TaskRef);

impl RemoteWake {
    /// On the loop's thread: put the task in the queue.
    pub fn arrive(self) {
        self.0.header().knock.answer();
        if let Some(here) = self.0.here() {
            self.0.wake_here(here);
        }
    }
}

impl Drop for RemoteWake {
    fn drop(&mut self) {
        self.0.drop_waker();
    }
}

/// A task's result, for the thread of its loop: what it says of the result makes it neither `Send` nor `Sync`.
pub(super) struct Handle<T> {
    task: TaskRef,
    result: PhantomData<*const T>,
}

impl<T> Handle<T> {
    pub fn is_over(&self) -> bool {
        self.here().phase.get() == Phase::Over
    }

    /// End the task at its loop's next turn; one that is over is left alone.
    pub fn abort(&self) {
        let here = self.here();
        here.aborted.set(true);
        self.task.wake_here(here);
    }

    /// The result, once; `Ready(None)` after that.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.is_over() {
            return Poll::Ready(self.take());
        }
        let here = self.here();
        let waiter = match here.waiter.take() {
            Some(waiter) if waiter.will_wake(cx.waker()) => waiter,
            _ => cx.waker().clone(),
        };
        here.waiter.set(Some(waiter));
        Poll::Pending
    }

    fn take(&mut self) -> Option<Result<T, JoinError>> {
        let mut result = None;
        // SAFETY: invariants 2 and 3; the task is over, and `T` is the output of its future.
        unsafe { (self.task.header().vtable.take)(self.task.0, (&raw mut result).cast()) };
        result
    }

    fn here(&self) -> &Here {
        // A handle is neither `Send` nor `Sync`, so it is on the thread that made it.
        self.task.here().expect("a JoinHandle is on its own thread")
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // Dropped last: it may run foreign code.
        let _result = if self.is_over() { self.take() } else { None };
        let here = self.here();
        let _waiter = here.waiter.take();
        here.handle.set(false);
        self.task.release();
    }
}

// --- the functions of the VTable -----------------------------------------------------------------

/// # Safety
/// Invariants 2 and 3.
unsafe fn stage<'a, F: Future>(task: NonNull<Header>) -> &'a mut Stage<F> {
    // SAFETY: invariant 3; the header is the first field.
    let task = unsafe { task.cast::<Task<F>>().as_ref() };
    // SAFETY: invariant 2.
    unsafe { &mut *task.stage.get() }
}

/// # Safety
/// Invariants 2 and 3; the task is not over.
unsafe fn poll<F: Future>(task: NonNull<Header>) -> bool {
    let result = if TaskRef(task).here().is_some_and(|here| here.aborted.get()) {
        Err(JoinError::Aborted)
    } else {
        // SAFETY: as the caller says.
        let Stage::Future(future) = (unsafe { stage::<F>(task) }) else {
            return true;
        };
        // SAFETY: invariant 4; it is in the task's allocation, and dropped there.
        let future = unsafe { Pin::new_unchecked(future) };
        let waker = lent_waker(task);
        let mut cx = Context::from_waker(&waker);
        match catch_unwind(AssertUnwindSafe(|| future.poll(&mut cx))) {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(JoinError::Panicked(payload)),
        }
    };
    // SAFETY: as the caller says.
    unsafe { finish::<F>(task, result) };
    true
}

/// # Safety
/// Invariants 2 and 3; the task is not over.
unsafe fn cancel<F: Future>(task: NonNull<Header>) {
    // SAFETY: as the caller says.
    unsafe { finish::<F>(task, Err(JoinError::Aborted)) };
}

/// The future goes first: its operations are cancelled before anybody hears of the result.
///
/// # Safety
/// Invariants 2 and 3; the task is not over.
unsafe fn finish<F: Future>(task: NonNull<Header>, result: Result<F::Output, JoinError>) {
    let dropped = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: as the caller says; also where the drop panics the stage is empty.
        *unsafe { stage::<F>(task) } = Stage::Empty;
    }));
    let result = match dropped {
        Ok(()) => result,
        Err(payload) => Err(JoinError::Panicked(payload)),
    };
    if TaskRef(task).here().is_some_and(|here| here.handle.get()) {
        // SAFETY: as the caller says.
        *unsafe { stage::<F>(task) } = Stage::Result(result);
        return;
    }
    // Nobody asked. A drop that panics has told the panic hook; there is nobody else to tell.
    drop(catch_unwind(AssertUnwindSafe(|| drop(result))));
}

/// # Safety
/// Invariants 2 and 3; the task is over, and `to` is an `Option<Result<F::Output, JoinError>>`.
unsafe fn take<F: Future>(task: NonNull<Header>, to: *mut ()) {
    // SAFETY: as the caller says.
    let stage = unsafe { stage::<F>(task) };
    if let Stage::Result(result) = std::mem::replace(stage, Stage::Empty) {
        // SAFETY: as the caller says.
        unsafe { *to.cast::<Option<Result<F::Output, JoinError>>>() = Some(result) };
    }
}

/// # Safety
/// Invariant 3; it is the last use (invariant 1). May be on another thread: the stage is empty.
unsafe fn free<F: Future>(task: NonNull<Header>) {
    // SAFETY: it came from a `Box` of this type.
    drop(unsafe { Box::from_raw(task.cast::<Task<F>>().as_ptr()) });
}

// --- wakers --------------------------------------------------------------------------------------

static WAKER: RawWakerVTable = RawWakerVTable::new(clone_raw, wake_raw, wake_by_ref_raw, drop_raw);

/// A waker that counts for nothing: only for the time of a poll.
fn lent_waker(task: NonNull<Header>) -> ManuallyDrop<Waker> {
    // SAFETY: the functions keep a waker's contract, on any thread; the loop holds the task while it polls it.
    ManuallyDrop::new(unsafe { Waker::new(task.as_ptr().cast_const().cast(), &WAKER) })
}

fn named(data: *const ()) -> TaskRef {
    // SAFETY: a waker's data is a task (`lent_waker`), so it is not null.
    TaskRef(unsafe { NonNull::new_unchecked(data.cast_mut().cast()) })
}

unsafe fn clone_raw(data: *const ()) -> RawWaker {
    named(data).header().wakers.add();
    RawWaker::new(data, &WAKER)
}

unsafe fn wake_raw(data: *const ()) {
    named(data).wake();
    named(data).drop_waker();
}

unsafe fn wake_by_ref_raw(data: *const ()) {
    named(data).wake();
}

unsafe fn drop_raw(data: *const ()) {
    named(data).drop_waker();
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    /// A wake from another thread is never lost, and never has two messages on their way.
    #[test]
    fn knock_runs_the_task_again_and_sends_once() {
        loom::model(|| {
            let knock = Arc::new(Knock::new());
            let inbox = Arc::new(AtomicU32::new(0));
            let data = Arc::new(AtomicU32::new(0));
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let (knock, inbox, data) = (knock.clone(), inbox.clone(), data.clone());
                    thread::spawn(move || {
                        data.fetch_add(1, Ordering::Relaxed);
                        if knock.raise() {
                            assert_eq!(inbox.fetch_add(1, Ordering::AcqRel), 0, "sent twice");
                        }
                    })
                })
                .collect();
            let mut seen = 0;
            let mut turn = || {
                if inbox.load(Ordering::Acquire) > 0 {
                    inbox.fetch_sub(1, Ordering::AcqRel);
                    knock.answer();
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
