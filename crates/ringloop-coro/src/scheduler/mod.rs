//! The scheduler of a thread's coroutines, run as one task of the engine's executor.
//!
//! Owns: the thread's coroutines with their stacks (`state`), their turns, their end (`shutdown`).
//! Called by: the executor, which polls [`SchedulerTask`]; `runtime`, which adds tasks; `wait`,
//! `coop` and `net`, for the coroutine that runs; wakers, by [`Schedule`] (other threads by the
//! `inbox`).
//!
//! A coroutine's operation (`parked_op`) is submitted and polled here, on the loop's own stack.
//!
//! Tasks that may begin on any worker are in the `lifo_slot` and in the queue that idle workers
//! steal from. The slot holds the task spawned last, which is not stolen: its spawner mostly waits
//! for it a moment later, and it runs with what it was given in cache.

mod shutdown;
mod state;

pub(crate) use state::Uninterruptible;

use crate::deadlock;
use crate::error::JoinError;
use crate::inbox::Inbox;
use crate::limits;
use crate::overflow;
use crate::switch::{Fiber, Suspend, with_current};
use crate::task::{Header, Runnable, Schedule, reject};
use crate::workers::{LiveWorker, StealQueue, WorkerParts, WorkerSet};
use ringloop::embed::Kind;
use ringloop::embed::Local;
use state::{Coroutine, Phase, SchedulerState};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

thread_local! {
    /// The scheduler whose loop ran last.
    static CURRENT: RefCell<Option<Rc<Scheduler>>> = const { RefCell::new(None) };
    /// All schedulers of the thread, which may run several loops in turn.
    static ALL: RefCell<Vec<Weak<Scheduler>>> = const { RefCell::new(Vec::new()) };
}

/// The coroutines of one thread.
pub(crate) struct Scheduler {
    workers: Arc<WorkerSet>,
    /// Until its end.
    live: Cell<Option<LiveWorker>>,
    index: usize,
    inbox: Arc<Inbox>,
    /// Tasks that were spawned before the one in the `lifo_slot`.
    queue: StealQueue,
    state: RefCell<SchedulerState>,
    /// The loop that runs it.
    loop_id: Cell<u64>,
    /// The loop's driver reports readiness: an operation is a system call of ours in any case.
    is_readiness: Cell<bool>,
    /// Coroutines that may still be resumed before the driver is polled.
    resumes_left: Cell<usize>,
}

fn with_scheduler<R>(work: impl FnOnce(&Rc<Scheduler>) -> R) -> Option<R> {
    CURRENT.with_borrow(|current| current.as_ref().map(work))
}

/// Whether no other coroutine of the calling thread is ready.
pub(crate) fn is_alone() -> bool {
    let alone = with_scheduler(|scheduler| {
        let state = scheduler.state.borrow();
        state.ready.is_empty() && state.lifo_slot.is_none() && scheduler.queue.is_empty()
    });
    alone == Some(true)
}

/// Whether the driver of the calling thread's loop reports readiness.
pub(crate) fn is_readiness_driver() -> bool {
    with_scheduler(|scheduler| scheduler.is_readiness.get()) == Some(true)
}

/// Has the driver polled once the running coroutine suspends.
pub(crate) fn end_turn() {
    with_scheduler(|scheduler| scheduler.resumes_left.set(0));
}

/// Wakes the running coroutine, which is cancelled, once no coroutine of the thread unwinds.
pub(crate) fn defer(task: &Header) {
    with_scheduler(|scheduler| {
        let mut state = scheduler.state.borrow_mut();
        state.deferred.push(task.slot());
        state.watches_unwinding = true;
    });
}

/// Has the next moment without unwinding noted; see `unwind`.
pub(crate) fn watch_unwinding() {
    with_scheduler(|scheduler| scheduler.state.borrow_mut().watches_unwinding = true);
}

/// The running coroutine does not unwind until the guard is dropped, not even at the runtime's end.
pub(crate) fn uninterruptible(why: Uninterruptible) -> Option<UninterruptibleGuard> {
    let slot = with_current(|frame| frame.map(|frame| frame.header().slot()))?;
    let scheduler = with_scheduler(Rc::clone)?;
    let entry = (slot, why);
    scheduler.state.borrow_mut().uninterruptible.push(entry);
    Some(UninterruptibleGuard { scheduler, entry })
}

/// See [`uninterruptible`].
pub(crate) struct UninterruptibleGuard {
    scheduler: Rc<Scheduler>,
    entry: (u32, Uninterruptible),
}

impl Drop for UninterruptibleGuard {
    fn drop(&mut self) {
        let waits = &mut self.scheduler.state.borrow_mut().uninterruptible;
        if let Some(index) = waits.iter().position(|entry| *entry == self.entry) {
            waits.swap_remove(index);
        }
    }
}

impl Schedule for Inbox {
    #[inline]
    fn wake_local(&self, task: &Header) -> bool {
        let woken = CURRENT.try_with(|current| {
            let current = current.try_borrow().ok()?;
            let scheduler = current.as_ref()?;
            if !std::ptr::eq(Arc::as_ptr(&scheduler.inbox), self) {
                return None;
            }
            if !task.is_finished() {
                scheduler.state.borrow_mut().wake(task.slot());
            }
            Some(())
        });
        matches!(woken, Ok(Some(())))
    }

    fn wake_remote(&self, task: Arc<dyn Runnable>) {
        // A scheduler that is gone has ended its coroutines.
        drop(self.send(task));
    }
}

impl Scheduler {
    /// The scheduler of the loop that the calling code runs in.
    pub fn current() -> Option<Rc<Self>> {
        let last = with_scheduler(Rc::clone);
        // A coroutine spawns on its own scheduler, whatever loop runs on its stack.
        if with_current(|frame| frame.is_some()) {
            return last;
        }
        let loop_id = Local::current_id()?;
        let is_its_loop = |scheduler: &Rc<Self>| scheduler.loop_id.get() == loop_id;
        last.filter(is_its_loop).or_else(|| {
            ALL.with_borrow(|all| all.iter().filter_map(Weak::upgrade).find(is_its_loop))
        })
    }

    #[inline(always)]
    fn make_current(self: &Rc<Self>) {
        CURRENT.with_borrow_mut(|current| {
            if !current.as_ref().is_some_and(|last| Rc::ptr_eq(last, self)) {
                // The last reference to the other one is its `SchedulerTask`'s.
                *current = Some(Rc::clone(self));
            }
        });
    }

    /// Makes a scheduler for the calling thread, whose stacks have `stack_bytes` usable bytes. The
    /// future runs its coroutines.
    pub fn open(parts: WorkerParts, stack_bytes: usize) -> SchedulerTask {
        let scheduler = Rc::new(Self {
            workers: parts.set,
            live: Cell::new(Some(parts.live)),
            index: parts.index,
            inbox: parts.inbox,
            queue: parts.queue,
            state: RefCell::new(SchedulerState::new(stack_bytes)),
            loop_id: Cell::new(Local::current_id().unwrap_or(0)),
            is_readiness: Cell::new(false),
            resumes_left: Cell::new(0),
        });
        ALL.with_borrow_mut(|all| all.push(Rc::downgrade(&scheduler)));
        scheduler.make_current();
        overflow::report_overflows();
        SchedulerTask(scheduler)
    }

    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Adds a task, which begins on this thread.
    pub fn spawn_local(&self, task: Arc<dyn Runnable>) {
        let mut state = self.state.borrow_mut();
        if state.is_closed {
            drop(state);
            return reject(&*task);
        }
        let slot = self.insert(&mut state, task);
        state.ready.push_back(slot);
        state.wake_executor();
    }

    /// Adds a task, which may begin on any worker.
    pub fn spawn(&self, task: Arc<dyn Runnable>) {
        if self.workers.is_single() {
            return self.spawn_local(task);
        }
        let mut state = self.state.borrow_mut();
        if state.is_closed {
            drop(state);
            return reject(&*task);
        }
        let before = state.lifo_slot.replace(task);
        state.wake_executor();
        drop(state);
        if let Some(before) = before {
            self.queue.push(before);
            self.workers.notify_one();
        }
    }

    fn insert(&self, state: &mut SchedulerState, task: Arc<dyn Runnable>) -> u32 {
        let slot =
            state.insert(Coroutine { task: Arc::clone(&task), fiber: None, phase: Phase::Ready });
        // A cancel that came before is seen when the task is about to begin.
        task.header().bind(Arc::clone(&self.inbox) as _, slot);
        slot
    }

    /// The next coroutine to run; `prefers_new` takes a task that has not begun first.
    #[inline(always)]
    fn pick(&self, prefers_new: bool) -> Option<u32> {
        let mut state = self.state.borrow_mut();
        if !prefers_new && let Some(slot) = state.pop_ready() {
            return Some(slot);
        }
        let task = state.lifo_slot.take().or_else(|| self.queue.pop());
        match task {
            Some(task) => Some(self.insert(&mut state, task)),
            None => state.pop_ready(),
        }
    }

    /// Runs one coroutine until it suspends; `false` if none is ready.
    // `switch` says why this and what it calls is inlined.
    #[inline(always)]
    fn run_one(&self, prefers_new: bool) -> bool {
        let Some(slot) = self.pick(prefers_new) else {
            return false;
        };
        let Some(mut fiber) = self.take_fiber(slot) else {
            self.finish(slot);
            return true;
        };
        let why = loop {
            // A cancelled coroutine is resumed without its output, and unwinds.
            if !fiber.poll_op() && !self.is_cancelled(slot) {
                break Suspend::Park;
            }
            match fiber.resume() {
                Some(Suspend::Op(_)) => {}
                Some(why) => break why,
                None => {
                    let mut state = self.state.borrow_mut();
                    state.stacks.put_back(fiber.into_stack());
                    state.check_unwinding();
                    drop(state);
                    self.finish(slot);
                    return true;
                }
            }
        };
        let state = &mut *self.state.borrow_mut();
        if let Some(coroutine) = state.get(slot) {
            coroutine.fiber = Some(fiber);
            if why == Suspend::Yield || coroutine.phase == Phase::Woken {
                coroutine.phase = Phase::Ready;
                state.ready.push_back(slot);
                if why == Suspend::Yield {
                    self.count_yield(state.ready.len());
                }
            } else {
                coroutine.phase = Phase::Parked;
            }
        }
        state.check_unwinding();
        true
    }

    /// A yield shortens the turn, which does not end before the ready coroutines have run.
    fn count_yield(&self, ready_count: usize) {
        self.resumes_left.update(|left| {
            left.saturating_sub(limits::RESUMES_PER_YIELD - 1).max(ready_count.min(left))
        });
    }

    fn is_cancelled(&self, slot: u32) -> bool {
        let mut state = self.state.borrow_mut();
        let coroutine = state.get(slot);
        coroutine.is_some_and(|coroutine| coroutine.task.header().is_cancelled())
    }

    /// Steals tasks of other workers; `false`: there are none, and this worker is marked as idle.
    fn steal(&self) -> bool {
        if self.workers.is_single() {
            return false;
        }
        loop {
            if let Some(task) = self.workers.steal(self.index, &self.queue) {
                self.spawn_local(task);
                return true;
            }
            if self.workers.set_idle(self.index) {
                return false;
            }
        }
    }

    /// The fiber of a coroutine that is to run; `None` if the task has failed in place of
    /// beginning.
    #[inline(always)]
    fn take_fiber(&self, slot: u32) -> Option<Fiber> {
        let mut state = self.state.borrow_mut();
        let coroutine = state.get(slot)?;
        coroutine.phase = Phase::Running;
        if let Some(fiber) = coroutine.fiber.take() {
            return Some(fiber);
        }
        let task = Arc::clone(&coroutine.task);
        let error = if task.header().is_cancelled() {
            JoinError::Cancelled
        } else {
            match state.stacks.take(task.header().options.stack_bytes) {
                Ok(stack) => return Some(Fiber::new(stack, task)),
                Err(error) => JoinError::Refused(error),
            }
        };
        drop(state);
        task.fail(error);
        None
    }

    fn finish(&self, slot: u32) {
        let removed = self.state.borrow_mut().remove(slot);
        if let Some(coroutine) = removed {
            coroutine.task.finish();
        }
    }

    /// Takes what other threads have sent: new tasks begin here, bound ones are woken.
    fn receive(&self, waker: &Waker) {
        for task in self.inbox.take(waker) {
            let header = task.header();
            if !header.is_bound() {
                self.spawn_local(task);
                continue;
            }
            header.clear_notified();
            if !header.is_finished() {
                self.state.borrow_mut().wake(header.slot());
            }
        }
    }

    /// Reports to the deadlock detector at the end of a turn.
    fn report(&self, local: &Local, has_run: bool) {
        let Some(detector) = &self.workers.detector else {
            return;
        };
        if has_run {
            detector.note_progress(self.index);
        }
        let (true, Some(pool_threads)) = (self.inbox.is_empty(), local.quiescent()) else {
            return;
        };
        let mut state = self.state.borrow_mut();
        let names = state.all().map(|(_, parked)| parked.task.header().to_string());
        let parked = names.collect();
        drop(state);
        if detector.report_idle(self.index, parked, pool_threads) {
            self.workers.notify_all();
        }
    }
}

/// The executor's task that runs the coroutines of a thread; dropping it cancels them.
pub(crate) struct SchedulerTask(Rc<Scheduler>);

impl Future for SchedulerTask {
    type Output = std::convert::Infallible;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let scheduler = &self.0;
        scheduler.make_current();
        {
            let state = &mut *scheduler.state.borrow_mut();
            state.is_awake = true;
            state.check_unwinding();
            match &mut state.waker {
                Some(known) => known.clone_from(cx.waker()),
                unknown => *unknown = Some(cx.waker().clone()),
            }
        }
        scheduler.receive(cx.waker());
        scheduler.workers.set_busy(scheduler.index);
        let local = Local::current();
        scheduler.loop_id.set(Local::current_id().unwrap_or(0));
        let is_readiness = local.engine().kind() == Kind::Epoll;
        scheduler.is_readiness.set(is_readiness);
        scheduler.resumes_left.set(limits::RESUMES_PER_TURN);
        let (mut has_run, mut prefers_new) = (false, true);
        while scheduler.resumes_left.get() > 0 {
            local.begin_poll();
            if !scheduler.run_one(prefers_new) && !scheduler.steal() {
                break;
            }
            has_run = true;
            // New tasks and ready coroutines alternate.
            prefers_new = !prefers_new;
            scheduler.resumes_left.update(|left| left.saturating_sub(1));
        }
        let mut state = scheduler.state.borrow_mut();
        state.is_awake = false;
        // More coroutines may be ready after a full turn.
        if scheduler.resumes_left.get() == 0 {
            local.end_turn();
            state.wake_executor();
        }
        drop(state);
        if deadlock::ENABLED {
            scheduler.report(&local, has_run);
        }
        Poll::Pending
    }
}

impl Drop for SchedulerTask {
    fn drop(&mut self) {
        let last = CURRENT.replace(Some(Rc::clone(&self.0)));
        if Local::try_current().is_some_and(|local| local.is_inherited()) {
            // In a forked child: destructors would wait for the parent's. The stacks stay as they
            // are.
            std::mem::forget(Rc::clone(&self.0));
        } else {
            self.0.shut_down();
        }
        CURRENT.set(last.filter(|last| !Rc::ptr_eq(last, &self.0)));
        ALL.with_borrow_mut(|all| {
            all.retain(|other| !std::ptr::eq(other.as_ptr(), Rc::as_ptr(&self.0)));
        });
    }
}
