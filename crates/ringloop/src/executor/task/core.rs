//! One task: its future, its result, and the wakers that put it in its loop's queue.
//!
//! Owns: the memory of a task, one allocation from its start to the last reference to it.
//! Called by: `local` (which runs tasks), `join` (which waits for them) and wakers on any thread.
//! Only the loop thread touches the future or the result.
//!
//! ```text
//!            wake, here or by the inbox        taken off the queue
//!   Idle ─────────────────────────────▶ Queued ──────────────────▶ Running ──ready──▶ Over
//!    ▲                                    ▲                          │   │
//!    │                                    └──pending, woken ─────────┤   └ a panic, an abort: Over too
//!    └───────────────────────────────────────pending─────────────────┘
//! ```
//! All of the picture is plain memory of the loop thread, reached through `Here`. Other threads
//! share two atomics: their half of the count of wakers (`count`), and a flag that is set while a
//! wake is in the loop's inbox (`remote_wake`), so that a hundred wakes from other threads send one
//! message.
//!
//! A task's memory is most of the cost of a short task, so the header is packed: 40 bytes, followed by
//! the future or the result, told apart by its flags. Only two places name a task for the loop: the
//! ready queue, and the hub's list of pending tasks, which it joins when a poll first leaves it
//! pending.
//!
//! # Invariants
//! 1. A task's memory is freed once: when the task has ended, is not queued, has no handle, and its
//!    last waker is dropped. So a `TaskRef` in the queue or on the list of pending tasks, a
//!    `Handle` and a waker name live memory.
//! 2. The stage, which holds the future or the result, is touched on the loop thread only, and by
//!    one caller at a time: by `poll` and `cancel` until the task has ended, by the handle after
//!    that.
//! 3. The functions of a `VTable` are of the future type that the task was made with.
//! 4. A future is not moved until it is dropped (`stage`).
//! 5. A task's hub lives as long as the task's memory: together the tasks hold one count of its
//!    `Arc`.
//! 6. The cells of a header are touched on the loop thread only: a `Here` is made after the hub has
//!    confirmed the thread, for a `Handle` and a `Next`, which cannot leave it, and under a
//!    caller's promise of invariant 2.
//! 7. The stage holds the future from the start until `finish`, which is called once; after that
//!    the result while the flag `RESULT` is set.

use super::count::SplitCount;
use super::error::JoinError;
use super::hub;
use super::listed::waiting;
use super::remote_wake::RemoteWakeFlag;
use super::stage::{Stage, Stored};
use super::waiter::WaiterCell;
use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Queued,
    /// Being polled, or dropped.
    Running,
    /// Running, and to be queued again after this poll.
    Woken,
    Over,
}

/// Flags of a task.
mod flag {
    /// In the ready queue; possibly cancelled there.
    pub const QUEUED: u8 = 1;
    /// A handle may still take the result.
    pub const HANDLE: u8 = 1 << 1;
    pub const ABORTED: u8 = 1 << 2;
    /// The result is in the stage.
    pub const RESULT: u8 = 1 << 3;
}

/// The slot of a task that is not on the list of pending tasks.
const NO_SLOT: u32 = u32::MAX;

/// The part of a task that does not depend on its future's type.
struct Header {
    vtable: &'static VTable,
    hub: NonNull<Hub>,
    /// Count of wakers: the other threads' half.
    wakers: SplitCount,
    remote_wake: RemoteWakeFlag,
    // From here on for the loop thread only (invariant 6).
    phase: Cell<Phase>,
    flags: Cell<u8>,
    /// Its slot on the list of pending tasks.
    slot: Cell<u32>,
    /// Count of wakers: the loop thread's half.
    wakers_here: Cell<i32>,
    /// Waker of the handle that waits for the result.
    waiter: WaiterCell,
}

/// The part of a task for the loop thread only; exists only there (invariant 6).
#[derive(Clone, Copy)]
struct Here(TaskRef);

impl Here {
    fn header(&self) -> &Header {
        self.0.header()
    }

    fn phase(self) -> Phase {
        self.header().phase.get()
    }

    fn set_phase(self, phase: Phase) {
        self.header().phase.set(phase);
    }

    fn is(self, flag: u8) -> bool {
        self.header().flags.get() & flag != 0
    }

    fn set(self, flag: u8) {
        self.header().flags.set(self.header().flags.get() | flag);
    }

    fn unset(self, flag: u8) {
        self.header().flags.set(self.header().flags.get() & !flag);
    }

    fn wakers(&self) -> &Cell<i32> {
        &self.header().wakers_here
    }

    fn take_waiter(self) -> Option<Waker> {
        self.header().waiter.take(&WAKER)
    }

    /// Replaces the waiter.
    fn put_waiter(self, waiter: Waker) {
        self.header().waiter.put(waiter, &WAKER);
    }
}

struct VTable {
    /// Polls the future; returns true if the task has ended, with its result stored.
    poll: unsafe fn(NonNull<Header>) -> bool,
    /// Drops the future, and stores that it was aborted.
    cancel: unsafe fn(NonNull<Header>),
    /// Moves the result to a `Stored<T>`.
    take: unsafe fn(NonNull<Header>, *mut ()),
    free: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Task<F: Future> {
    header: Header,
    stage: Stage<F>,
}

/// Creates a task, queued on the calling thread's loop.
pub(crate) fn start<F>(hub: &Arc<Hub>, future: F) -> Handle<F::Output>
where
    F: Future + 'static,
{
    let header = Header {
        vtable: &VTable { poll: poll::<F>, cancel: cancel::<F>, take: take::<F>, free: free::<F> },
        hub: NonNull::from(&**hub),
        wakers: SplitCount::new(),
        remote_wake: RemoteWakeFlag::new(),
        phase: Cell::new(Phase::Queued),
        flags: Cell::new(flag::QUEUED | flag::HANDLE),
        slot: Cell::new(NO_SLOT),
        wakers_here: Cell::new(0),
        waiter: WaiterCell::new(),
    };
    let task = Box::new(Task { header, stage: Stage::new(future) });
    let task = TaskRef(NonNull::from(Box::leak(task)).cast());
    hub.add(task);
    Handle { task, result: PhantomData }
}

/// Lets the tasks hold a count of their hub (invariant 5).
pub(crate) fn open_hub(hub: &Arc<Hub>) {
    std::mem::forget(Arc::clone(hub));
}

/// Drops that count: now, or when the last task's memory is freed.
pub(crate) fn close_hub(hub: &Arc<Hub>) {
    if hub.close_task_count() {
        // SAFETY: invariant 5; it is the count of `open_hub`, and no task is left to use it.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(hub)) };
    }
}

/// Shared state of a loop's tasks.
pub(crate) type Hub = hub::Hub<TaskRef, RemoteWake>;

/// A message from another thread to a loop.
pub(crate) type Arrival = hub::Arrival<TaskRef, RemoteWake>;

/// Names a task, for the queue and the list of tasks (invariant 1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskRef(NonNull<Header>);

// SAFETY: what only the task's own thread may touch is behind `Here` (invariant 6); the rest is
// thread-safe.
unsafe impl Send for TaskRef {}

impl std::fmt::Debug for TaskRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({:p})", self.0)
    }
}

impl TaskRef {
    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: invariant 1.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn here(self) -> Option<Here> {
        self.hub().here().map(|_| Here(self))
    }

    #[inline]
    fn hub(&self) -> &Hub {
        // SAFETY: invariant 5.
        unsafe { self.header().hub.as_ref() }
    }

    #[inline]
    fn run(self, here: Here) {
        here.unset(flag::QUEUED);
        match here.phase() {
            Phase::Idle | Phase::Queued => {}
            // Cancelled while it was queued.
            Phase::Over => return self.release(here),
            // Popped by a turn inside its own end, which frees it.
            Phase::Running | Phase::Woken => return,
        }
        here.set_phase(Phase::Running);
        // SAFETY: invariant 3; invariant 2: not ended, and `Running` excludes every other caller.
        if unsafe { (self.header().vtable.poll)(self.0) } {
            return self.end(here);
        }
        if here.header().slot.get() == NO_SLOT
            && let Some(slot) = self.hub().insert(self)
        {
            here.header().slot.set(slot);
        }
        if here.header().phase.replace(Phase::Idle) == Phase::Woken {
            self.wake();
        }
    }

    /// Drops the future and completes its handle. Returns `false` if the task is running.
    pub fn cancel(self) -> bool {
        let Some(here) = self.here() else {
            return false;
        };
        if !matches!(here.phase(), Phase::Idle | Phase::Queued) {
            return false;
        }
        here.set_phase(Phase::Running);
        // SAFETY: invariant 3; invariant 2, as in `run`.
        unsafe { (self.header().vtable.cancel)(self.0) };
        self.end(here);
        true
    }

    fn dismiss(self, here: Here) -> bool {
        here.unset(flag::QUEUED);
        if here.phase() == Phase::Over {
            self.release(here);
            return false;
        }
        self.cancel()
    }

    /// The result is stored: wakes the waiter, last, since that may call back.
    fn end(self, here: Here) {
        here.set_phase(Phase::Over);
        let slot = here.header().slot.replace(NO_SLOT);
        if slot != NO_SLOT {
            self.hub().remove(slot);
        }
        let waiter = here.take_waiter();
        self.release(here);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    #[inline]
    fn wake(self) {
        match self.hub().here() {
            Some(hub) => self.wake_here(hub),
            None => self.wake_there(),
        }
    }

    #[inline]
    fn wake_here(self, hub: &hub::Here<Self>) {
        let here = Here(self);
        match here.phase() {
            Phase::Idle => {
                here.set_phase(Phase::Queued);
                here.set(flag::QUEUED);
                hub.push_ready(self);
            }
            Phase::Running => here.set_phase(Phase::Woken),
            Phase::Queued | Phase::Woken | Phase::Over => {}
        }
    }

    /// Wakes the task from another thread than its loop's.
    #[cold]
    fn wake_there(self) {
        if self.header().remote_wake.set() {
            self.add_waker();
            self.hub().send_wake(RemoteWake(self));
        }
    }

    /// Frees the memory if only wakers were left, and they are gone; otherwise the last waker frees
    /// it (invariant 1).
    fn release(self, here: Here) {
        let held = here.is(flag::HANDLE | flag::QUEUED) || here.phase() != Phase::Over;
        if !held && self.header().wakers.close(here.wakers()) {
            self.free();
        }
    }

    fn free(self) {
        let header = self.header();
        let (hub, free) = (header.hub, header.vtable.free);
        // SAFETY: invariant 3; invariant 1: the caller has dropped the last reference.
        unsafe { free(self.0) };
        // SAFETY: invariant 5: this task held the count until here.
        if unsafe { hub.as_ref() }.note_task_freed() {
            // SAFETY: invariant 5; the hub was closed, and this was the last task.
            unsafe { Arc::decrement_strong_count(hub.as_ptr()) };
        }
    }

    #[inline]
    fn add_waker(self) {
        let here = self.here();
        let here = here.as_ref().map(Here::wakers);
        self.header().wakers.add(here);
    }

    #[inline]
    fn drop_waker(self) {
        let here = self.here();
        let here = here.as_ref().map(Here::wakers);
        if self.header().wakers.sub(here) {
            self.free();
        }
    }
}

/// A task popped off its loop's queue; stays on the loop thread.
pub(crate) struct Next {
    task: TaskRef,
    thread: PhantomData<*const ()>,
}

impl Next {
    /// The task of the calling thread's loop that has been ready the longest.
    #[inline]
    pub fn of(hub: &Hub) -> Option<Self> {
        hub.pop_ready().map(Self::of_this_thread)
    }

    /// The task that became ready last.
    pub fn newest_of(hub: &Hub) -> Option<Self> {
        hub.pop_newest().map(Self::of_this_thread)
    }

    /// Call on the thread of the task's loop (invariant 6).
    #[inline]
    fn of_this_thread(task: TaskRef) -> Self {
        debug_assert!(task.here().is_some());
        Self { task, thread: PhantomData }
    }

    /// Poll the future.
    #[inline]
    pub fn run(self) {
        self.task.run(Here(self.task));
    }

    /// As [`TaskRef::cancel`].
    pub fn dismiss(self) -> bool {
        self.task.dismiss(Here(self.task))
    }
}

/// A wake in the loop's inbox; counts as a waker.
#[derive(Debug)]
pub(crate) struct RemoteWake(TaskRef);

impl RemoteWake {
    /// On the loop thread: queues the task.
    pub fn arrive(self) {
        self.0.header().remote_wake.clear();
        if let Some(hub) = self.0.hub().here() {
            self.0.wake_here(hub);
        }
    }
}

impl Drop for RemoteWake {
    fn drop(&mut self) {
        self.0.drop_waker();
    }
}

/// A task's result, for the thread of its loop: its marker makes it neither `Send` nor `Sync`.
pub(crate) struct Handle<T> {
    task: TaskRef,
    result: PhantomData<*const T>,
}

impl<T> Handle<T> {
    pub fn is_over(&self) -> bool {
        self.here().phase() == Phase::Over
    }

    /// Ends the task at its loop's next turn; no effect if it has ended.
    pub fn abort(&self) {
        let here = self.here();
        here.set(flag::ABORTED);
        self.task.wake();
    }

    /// The result, once; `Ready(None)` after that.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.is_over() {
            return Poll::Ready(self.take());
        }
        let here = self.here();
        let waiter = match here.take_waiter() {
            Some(waiter) if waiter.will_wake(cx.waker()) => waiter,
            _ => cx.waker().clone(),
        };
        here.put_waiter(waiter);
        waiting("a task")
    }

    fn take(&mut self) -> Option<Result<T, JoinError>> {
        let here = self.here();
        if !here.is(flag::RESULT) {
            return None;
        }
        here.unset(flag::RESULT);
        let mut stored = MaybeUninit::<Stored<T>>::uninit();
        // SAFETY: invariants 2, 3 and 7; the task has ended, and `T` is the output of its future.
        unsafe { (self.task.header().vtable.take)(self.task.0, stored.as_mut_ptr().cast()) };
        // SAFETY: `take` has written it.
        let stored = unsafe { stored.assume_init() };
        Some(stored.map_err(|payload| match payload {
            Some(payload) => JoinError::Panicked(*payload),
            None => JoinError::Cancelled,
        }))
    }

    fn here(&self) -> Here {
        // Invariant 6: a handle is neither `Send` nor `Sync`, so this is the thread that made it.
        Here(self.task)
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // Dropped last: it may run arbitrary code.
        let _result = self.take();
        let here = self.here();
        let _waiter = here.take_waiter();
        here.unset(flag::HANDLE);
        self.task.release(here);
    }
}

// --- the functions of the VTable -----------------------------------------------------------------

/// # Safety
/// Invariant 3, and the task's memory is live.
unsafe fn stage<'a, F: Future>(task: NonNull<Header>) -> &'a Stage<F> {
    // SAFETY: invariant 3; the header is the first field.
    &unsafe { task.cast::<Task<F>>().as_ref() }.stage
}

/// # Safety
/// Invariants 2 and 3; the task is not over.
unsafe fn poll<F: Future>(task: NonNull<Header>) -> bool {
    // Invariant 6, by the caller's promise.
    let result = if Here(TaskRef(task)).is(flag::ABORTED) {
        Err(None)
    } else {
        // SAFETY: invariant 3.
        let stage = unsafe { stage::<F>(task) };
        // SAFETY: invariants 2 and 7: a task that is not over has its future.
        match unsafe { stage.poll(&borrowed_waker(task)) } {
            Poll::Pending => return false,
            Poll::Ready(result) => result,
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
    unsafe { finish::<F>(task, Err(None)) };
}

/// Drops the future first: its operations are cancelled before the waiter sees the result.
///
/// # Safety
/// Invariants 2 and 3; the task is not over.
unsafe fn finish<F: Future>(task: NonNull<Header>, result: Stored<F::Output>) {
    // SAFETY: invariant 3.
    let stage = unsafe { stage::<F>(task) };
    // SAFETY: invariants 2 and 7.
    let result = unsafe { stage.end(result) };
    let here = Here(TaskRef(task));
    if here.is(flag::HANDLE) {
        // SAFETY: invariants 2 and 7: the stage is empty.
        unsafe { stage.store(result) };
        here.set(flag::RESULT);
        return;
    }
    // There is no handle. A panicking drop has called the panic hook; there is no other place to
    // report it.
    drop(catch_unwind(AssertUnwindSafe(|| drop(result))));
}

/// # Safety
/// Invariants 2 and 3; the result was in the stage, and `to` has room for a `Stored<F::Output>`.
unsafe fn take<F: Future>(task: NonNull<Header>, to: *mut ()) {
    // SAFETY: invariant 3.
    let stage = unsafe { stage::<F>(task) };
    // SAFETY: as the caller says.
    unsafe { stage.take(to.cast()) };
}

/// # Safety
/// Invariant 3; it is the last use (invariant 1). May be on another thread: the stage is empty.
unsafe fn free<F: Future>(task: NonNull<Header>) {
    // SAFETY: it came from a `Box` of this type.
    drop(unsafe { Box::from_raw(task.cast::<Task<F>>().as_ptr()) });
}

// --- wakers --------------------------------------------------------------------------------------

static WAKER: RawWakerVTable = RawWakerVTable::new(clone_raw, wake_raw, wake_by_ref_raw, drop_raw);

/// A waker that is not counted: only valid during a poll.
fn borrowed_waker(task: NonNull<Header>) -> ManuallyDrop<Waker> {
    // SAFETY: the functions keep a waker's contract, on any thread; the loop holds the task while it polls it.
    ManuallyDrop::new(unsafe { Waker::new(task.as_ptr().cast_const().cast(), &WAKER) })
}

fn named(data: *const ()) -> TaskRef {
    // SAFETY: a waker's data is a task (`borrowed_waker`), so it is not null.
    TaskRef(unsafe { NonNull::new_unchecked(data.cast_mut().cast()) })
}

unsafe fn clone_raw(data: *const ()) -> RawWaker {
    named(data).add_waker();
    RawWaker::new(data, &WAKER)
}

unsafe fn wake_raw(data: *const ()) {
    let task = named(data);
    let Some(hub) = task.hub().here() else {
        task.wake_there();
        return task.drop_waker();
    };
    task.wake_here(hub);
    if task.header().wakers.sub(Some(Here(task).wakers())) {
        task.free();
    }
}

unsafe fn wake_by_ref_raw(data: *const ()) {
    named(data).wake();
}

unsafe fn drop_raw(data: *const ()) {
    named(data).drop_waker();
}

#[cfg(all(test, not(loom), target_pointer_width = "64"))]
mod tests {
    use super::*;

    #[test]
    fn short_task_fits_in_a_cache_line() {
        fn size_of_task<F: Future>(_: &F) -> usize {
            size_of::<Task<F>>()
        }
        assert_eq!(size_of::<Header>(), 40);
        let number = 1_usize;
        assert_eq!(size_of_task(&async move { number }), 56);
    }
}
