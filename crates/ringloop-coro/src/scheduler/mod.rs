//! The coroutines of one thread: who is ready, and their turn.
//!
//! Owns: the table of its coroutines with their stacks, the ready queue, the pool of stacks; other threads knock at its
//! `door`. Called by: the engine's executor, one of whose tasks it is ([`SchedulerTask`]), and by wakers.
//! Never does: hold a borrow while a coroutine runs.
//!
//! ```text
//!              wake                    taken off the queue
//!   Idle ────────────────▶ Queued ─────────────────────────▶ Running ── closure's end ─▶ (slot free)
//!    ▲                       ▲                                 │   │
//!    │                       └────── yields, or woken (Woken) ─┘   │
//!    └────────────────────────────────── parks ────────────────────┘
//! ```
//! The phase is plain memory of the thread; a wake from elsewhere comes by the door (`task`'s `KNOCKED`).
//!
//! What a coroutine asks for (`ask`) is begun and looked at here, on the loop's own stack.
//!
//! Coroutines that may begin on any worker stand in `next` and in the queue that idle workers take from. `next` holds
//! the last one that was spawned, which nobody takes: most often its spawner waits for it a moment later, and it
//! runs on the same stack, with what it was given in cache.

mod shutdown;

pub(crate) use shutdown::{outlast, reclaim, usable};

use crate::deadlock::{self, Next};
use crate::inbox::Inbox;
use crate::join::JoinError;
use crate::limits;
use crate::overflow::{self, FaultGuard};
use crate::stack::StackPool;
use crate::switch::{Fiber, Suspend, with_current};
use crate::task::{Header, Runnable};
use crate::wait;
use crate::workers::{LiveWorker, StealQueue, WorkerParts, WorkerSet};
use ringloop::driver::Kind;
use ringloop::executor::Local;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

thread_local! {
    /// The one whose loop was at work last.
    static CURRENT: RefCell<Option<Rc<Scheduler>>> = const { RefCell::new(None) };
    /// Every one of the thread, which may run several loops by turns.
    static SCHEDULERS: RefCell<Vec<Weak<Scheduler>>> = const { RefCell::new(Vec::new()) };
}

/// Where a coroutine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Queued,
    Running,
    /// Running, and to be queued again after that.
    Woken,
}

/// A coroutine that is not over.
struct Live {
    task: Arc<dyn Runnable>,
    /// Its stack, while it has one and does not run on it.
    fiber: Option<Fiber>,
    phase: Phase,
}

enum Slot {
    Live(Live),
    /// And the next free one.
    Free(Option<u32>),
}

struct Inner {
    slots: Vec<Slot>,
    free_head: Option<u32>,
    ready: VecDeque<u32>,
    /// The last one that was spawned and may begin anywhere.
    next: Option<Arc<dyn Runnable>>,
    /// Cancelled ones that wait to unwind until no other is in the midst of it.
    deferred: Vec<u32>,
    /// They, or somebody's [`UnwindCheck`](crate::wait::UnwindCheck), are to know when no coroutine unwinds.
    asks_for_calm: bool,
    /// Those that wait for coroutines which perhaps unwind elsewhere, and do not unwind before.
    outlasting: Vec<u32>,
    /// How many of them wait for the kernel to let go of their memory.
    reclaiming: usize,
    stacks: StackPool,
    /// The executor's task that runs the coroutines.
    waker: Option<Waker>,
    /// It runs, or was woken already.
    awake: bool,
    closed: bool,
}

/// The coroutines of one thread.
pub(crate) struct Scheduler {
    team: Arc<WorkerSet>,
    /// Until its end.
    presence: Cell<Option<LiveWorker>>,
    number: usize,
    door: Arc<Inbox>,
    /// Those that were spawned before `next`.
    queue: StealQueue,
    inner: RefCell<Inner>,
    /// The loop that runs it, from its first turn on.
    loop_id: Cell<u64>,
    /// Its driver tells what is ready, and does nothing by itself.
    is_readiness: Cell<bool>,
    /// The driver is to be asked for completions before the next coroutine runs.
    is_turn_over: Cell<bool>,
}

impl Inner {
    fn live(&mut self, slot: u32) -> Option<&mut Live> {
        match self.slots.get_mut(slot as usize)? {
            Slot::Live(live) => Some(live),
            Slot::Free(_) => None,
        }
    }

    fn insert(&mut self, live: Live) -> u32 {
        if let Some(index) = self.free_head
            && let Some(slot) = self.slots.get_mut(index as usize)
            && let Slot::Free(next) = *slot
        {
            self.free_head = next;
            *slot = Slot::Live(live);
            return index;
        }
        self.slots.push(Slot::Live(live));
        (self.slots.len() - 1) as u32
    }

    fn remove(&mut self, index: u32) -> Option<Live> {
        let slot = self.slots.get_mut(index as usize)?;
        match std::mem::replace(slot, Slot::Free(self.free_head)) {
            Slot::Live(live) => {
                self.free_head = Some(index);
                Some(live)
            }
            free @ Slot::Free(_) => {
                *slot = free;
                None
            }
        }
    }

    /// Whose turn comes next will find its stack at hand.
    #[inline(always)]
    fn expect_next(&mut self) {
        if let Some(next) = self.ready.front().copied()
            && let Some(Live {
                fiber: Some(fiber), ..
            }) = self.live(next)
        {
            fiber.expect();
        }
    }

    /// Have the executor run the coroutines, where it does not anyway.
    fn call(&mut self) {
        if !std::mem::replace(&mut self.awake, true)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    /// On the loop's own stack, where only a coroutine that left its stack in the midst of unwinding panics.
    #[inline(always)]
    fn look_for_calm(&mut self) {
        if self.asks_for_calm && !std::thread::panicking() {
            self.asks_for_calm = false;
            wait::note_calm();
            for slot in std::mem::take(&mut self.deferred) {
                self.wake(slot);
            }
        }
    }

    fn wake(&mut self, slot: u32) {
        let Some(live) = self.live(slot) else {
            return;
        };
        match live.phase {
            Phase::Idle => {
                live.phase = Phase::Queued;
                self.ready.push_back(slot);
                self.call();
            }
            Phase::Running => live.phase = Phase::Woken,
            Phase::Queued | Phase::Woken => {}
        }
    }
}

/// Wake a coroutine of the calling thread's host. `false`: it is another thread's.
pub(crate) fn wake_here(head: &Header) -> bool {
    let woken = CURRENT.try_with(|host| {
        let host = host.try_borrow().ok()?;
        let (host, home) = (host.as_ref()?, head.home()?);
        if !Arc::ptr_eq(&host.door, home) {
            return None;
        }
        if !head.is_over() {
            host.inner.borrow_mut().wake(head.slot());
        }
        Some(())
    });
    matches!(woken, Ok(Some(())))
}

/// Whether no other coroutine of the calling thread is ready.
pub(crate) fn is_alone() -> bool {
    CURRENT.with_borrow(|host| {
        host.as_ref().is_some_and(|host| {
            let inner = host.inner.borrow();
            inner.ready.is_empty() && inner.next.is_none() && host.queue.is_empty()
        })
    })
}

/// Whether the driver of the calling thread's loop waits for readiness, so that an operation is a system call of ours
/// in any case.
pub(crate) fn goes_by_readiness() -> bool {
    CURRENT.with_borrow(|host| host.as_ref().is_some_and(|host| host.is_readiness.get()))
}

/// Once the coroutine that runs gives up its turn, the driver has its own.
pub(crate) fn end_turn() {
    CURRENT.with_borrow(|host| {
        if let Some(host) = host {
            host.is_turn_over.set(true);
        }
    });
}

/// The coroutine that runs is cancelled and cannot tell whether it unwinds: it is woken once no coroutine of the
/// thread does.
pub(crate) fn defer(head: &Header) {
    CURRENT.with_borrow(|host| {
        if let Some(host) = host {
            let mut inner = host.inner.borrow_mut();
            inner.deferred.push(head.slot());
            inner.asks_for_calm = true;
        }
    });
}

/// Note the next moment at which no coroutine of the thread unwinds; see [`wait::note_calm`].
pub(crate) fn ask_for_calm() {
    CURRENT.with_borrow(|host| {
        if let Some(host) = host {
            host.inner.borrow_mut().asks_for_calm = true;
        }
    });
}

impl Scheduler {
    /// The host of the loop that the calling code runs in.
    pub fn current() -> Option<Rc<Self>> {
        let last = CURRENT.with_borrow(Option::clone);
        // On the stack of a coroutine what is spawned is its host's, whatever loop runs there.
        if with_current(|frame| frame.is_some()) {
            return last;
        }
        let loop_id = Local::current_id()?;
        let is_its_loop = |host: &Rc<Self>| host.loop_id.get() == loop_id;
        last.filter(is_its_loop).or_else(|| {
            let hosts = SCHEDULERS.take();
            let found = hosts.iter().filter_map(Weak::upgrade).find(is_its_loop);
            SCHEDULERS.set(hosts);
            found
        })
    }

    /// From now on the loop at work is this one's.
    #[inline(always)]
    fn come_on(self: &Rc<Self>) {
        CURRENT.with_borrow_mut(|last| {
            if !last.as_ref().is_some_and(|last| Rc::ptr_eq(last, self)) {
                // Its `SchedulerTask` has the other one, too.
                *last = Some(Rc::clone(self));
            }
        });
    }

    /// A host for the calling thread, whose stacks have so many usable bytes; the future runs its coroutines.
    pub fn open(place: WorkerParts, stack_bytes: usize) -> SchedulerTask {
        let inner = Inner {
            slots: Vec::new(),
            free_head: None,
            ready: VecDeque::new(),
            next: None,
            deferred: Vec::new(),
            asks_for_calm: false,
            outlasting: Vec::new(),
            reclaiming: 0,
            stacks: StackPool::new(stack_bytes),
            waker: None,
            awake: true,
            closed: false,
        };
        let host = Rc::new(Self {
            team: place.team,
            presence: Cell::new(Some(place.presence)),
            number: place.number,
            door: place.door,
            queue: place.queue,
            inner: RefCell::new(inner),
            loop_id: Cell::new(Local::current_id().unwrap_or(0)),
            is_readiness: Cell::new(false),
            is_turn_over: Cell::new(false),
        });
        SCHEDULERS.with_borrow_mut(|hosts| hosts.push(Rc::downgrade(&host)));
        host.come_on();
        SchedulerTask {
            host,
            _watch: overflow::watch(),
        }
    }

    /// Where other threads reach it.
    pub fn door(&self) -> &Arc<Inbox> {
        &self.door
    }

    /// Take a task for good: it begins here when its turn comes.
    pub fn adopt(&self, task: Arc<dyn Runnable>) {
        let mut inner = self.inner.borrow_mut();
        if inner.closed {
            drop(inner);
            return refuse(&*task);
        }
        let slot = self.insert(&mut inner, task);
        inner.ready.push_back(slot);
        inner.call();
    }

    /// Take a task that may begin anywhere: here, when its turn comes, or where somebody is idle.
    pub fn offer(&self, task: Arc<dyn Runnable>) {
        if self.team.is_alone() {
            return self.adopt(task);
        }
        let mut inner = self.inner.borrow_mut();
        if inner.closed {
            drop(inner);
            return refuse(&*task);
        }
        let before = inner.next.replace(task);
        inner.call();
        drop(inner);
        if let Some(before) = before {
            self.queue.push(before);
            self.team.call_one();
        }
    }

    fn insert(&self, inner: &mut Inner, task: Arc<dyn Runnable>) -> u32 {
        let slot = inner.insert(Live {
            task: Arc::clone(&task),
            fiber: None,
            phase: Phase::Queued,
        });
        // Where it was cancelled before, it is found so when its turn comes.
        task.head().settle(&self.door, slot);
        slot
    }

    /// Whose turn it is: in turns one that was ready and one that has not begun.
    #[inline(always)]
    fn pick(&self, begin_first: bool) -> Option<u32> {
        let mut inner = self.inner.borrow_mut();
        if !begin_first && let Some(slot) = inner.ready.pop_front() {
            inner.expect_next();
            return Some(slot);
        }
        let task = inner.next.take().or_else(|| self.queue.pop());
        if let Some(task) = task {
            return Some(self.insert(&mut inner, task));
        }
        let slot = inner.ready.pop_front();
        inner.expect_next();
        slot
    }

    /// Give one coroutine its turn; `false` where none is ready.
    // See `switch` for why it is inlined, as what it calls.
    #[inline(always)]
    fn run_one(&self, begin_first: bool) -> bool {
        let Some(slot) = self.pick(begin_first) else {
            return false;
        };
        let Some(mut fiber) = self.fiber(slot) else {
            self.end(slot);
            return true;
        };
        let why = loop {
            // A cancelled one comes back without what it asked for, and unwinds.
            if !fiber.is_answered() && !self.is_cancelled(slot) {
                break Suspend::Park;
            }
            match fiber.resume() {
                Some(Suspend::ParkedOpRef(_)) => {}
                Some(why) => break why,
                None => {
                    let mut inner = self.inner.borrow_mut();
                    inner.stacks.give(fiber.into_stack());
                    inner.look_for_calm();
                    drop(inner);
                    self.end(slot);
                    return true;
                }
            }
        };
        let inner = &mut *self.inner.borrow_mut();
        if let Some(live) = inner.live(slot) {
            live.fiber = Some(fiber);
            if why == Suspend::Yield || live.phase == Phase::Woken {
                live.phase = Phase::Queued;
                inner.ready.push_back(slot);
            } else {
                live.phase = Phase::Idle;
            }
        }
        inner.look_for_calm();
        true
    }

    fn is_cancelled(&self, slot: u32) -> bool {
        let mut inner = self.inner.borrow_mut();
        let live = inner.live(slot);
        live.is_some_and(|live| live.task.head().is_cancelled())
    }

    /// Take over what others have not begun; `false`: nothing, and this worker is noted as idle.
    fn find_work(&self) -> bool {
        if self.team.is_alone() {
            return false;
        }
        loop {
            if let Some(task) = self.team.steal(self.number, &self.queue) {
                self.adopt(task);
                return true;
            }
            if self.team.rest(self.number) {
                return false;
            }
        }
    }

    /// The stack of a coroutine whose turn it is; `None` where it will not have one.
    #[inline(always)]
    fn fiber(&self, slot: u32) -> Option<Fiber> {
        let mut inner = self.inner.borrow_mut();
        let live = inner.live(slot)?;
        live.phase = Phase::Running;
        if let Some(fiber) = live.fiber.take() {
            return Some(fiber);
        }
        let task = Arc::clone(&live.task);
        let error = if task.head().is_cancelled() {
            JoinError::Cancelled
        } else {
            match inner.stacks.take(task.head().traits.stack_bytes) {
                Ok(stack) => return Some(Fiber::new(stack, task)),
                Err(error) => JoinError::Refused(error),
            }
        };
        drop(inner);
        task.refuse(error);
        None
    }

    fn end(&self, slot: u32) {
        let live = self.inner.borrow_mut().remove(slot);
        if let Some(live) = live {
            live.task.finish();
        }
    }

    /// Take what other threads have sent.
    fn arrivals(&self, waker: &Waker) {
        let tasks = self.door.take(waker);
        for task in tasks {
            if task.head().home().is_none() {
                self.adopt(task);
                continue;
            }
            task.head().answer();
            if !task.head().is_over() {
                self.inner.borrow_mut().wake(task.head().slot());
            }
        }
    }

    /// At the end of a turn: help to find a deadlock.
    fn report(&self, local: &Local, has_run: bool) {
        let Some(census) = &self.team.census else {
            return;
        };
        if has_run {
            census.active(self.number);
        }
        let (true, Some(pool_threads)) = (self.door.is_empty(), local.waits_for_nothing()) else {
            return;
        };
        let inner = self.inner.borrow();
        let parked = inner.slots.iter().filter_map(|slot| match slot {
            Slot::Live(live) => Some(live.task.head().to_string()),
            Slot::Free(_) => None,
        });
        let parked = parked.collect();
        drop(inner);
        if census.quiet(self.number, parked, pool_threads) == Next::CallAll {
            self.team.call_all();
        }
    }
}

/// End a task that will not begin.
fn refuse(task: &dyn Runnable) {
    task.refuse(JoinError::Cancelled);
    task.finish();
}

/// The executor's task that runs the coroutines of a thread; dropping it cancels them.
pub(crate) struct SchedulerTask {
    host: Rc<Scheduler>,
    _watch: Option<FaultGuard>,
}

impl Future for SchedulerTask {
    type Output = std::convert::Infallible;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let host = &self.host;
        host.come_on();
        {
            let inner = &mut *host.inner.borrow_mut();
            inner.awake = true;
            inner.look_for_calm();
            if !inner
                .waker
                .as_ref()
                .is_some_and(|known| known.will_wake(cx.waker()))
            {
                inner.waker = Some(cx.waker().clone());
            }
        }
        host.arrivals(cx.waker());
        host.team.rise(host.number);
        let local = Local::current();
        host.loop_id.set(Local::current_id().unwrap_or(0));
        let is_readiness = local.engine().kind() == Kind::Epoll;
        host.is_readiness.set(is_readiness);
        let mut left = limits::RESUMES_PER_TURN;
        while left > 0 {
            local.begin_poll();
            if !host.run_one(left.is_multiple_of(2)) && !host.find_work() {
                break;
            }
            left = if host.is_turn_over.take() {
                0
            } else {
                left - 1
            };
        }
        let mut inner = host.inner.borrow_mut();
        inner.awake = false;
        // With a turn used up there may be more.
        if left == 0 {
            inner.call();
        }
        drop(inner);
        if deadlock::SOUGHT {
            host.report(&local, left < limits::RESUMES_PER_TURN);
        }
        Poll::Pending
    }
}

impl Drop for SchedulerTask {
    fn drop(&mut self) {
        let last = CURRENT.replace(Some(Rc::clone(&self.host)));
        if Local::try_current().is_some_and(|local| local.is_inherited()) {
            // In a forked child: to unwind, destructors would wait for what is the parent's. The stacks are left.
            std::mem::forget(Rc::clone(&self.host));
        } else {
            self.host.shut_down();
        }
        CURRENT.set(last.filter(|last| !Rc::ptr_eq(last, &self.host)));
        SCHEDULERS.with_borrow_mut(|hosts| {
            hosts.retain(|host| !std::ptr::eq(host.as_ptr(), Rc::as_ptr(&self.host)));
        });
    }
}
