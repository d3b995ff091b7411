//! The coroutines of one thread: who is ready, and their turn.
//!
//! Owns: the table of its coroutines with their stacks, the ready queue, the pool of stacks; other threads knock at its
//! `door`. Called by: the engine's executor, one of whose tasks it is ([`Hosting`]), and by wakers.
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
//! Coroutines that may begin on any worker stand in `next` and in the queue that idle workers take from. `next` holds
//! the last one that was spawned, which nobody takes: most often its spawner waits for it a moment later, and it
//! runs on the same stack, with what it was given in cache.

use crate::deadlock::{self, Next};
use crate::door::Door;
use crate::join::JoinError;
use crate::limits;
use crate::overflow::{self, Watch};
use crate::stack::Pool;
use crate::switch::{Fiber, Suspend, with_current};
use crate::task::{Head, Run};
use crate::team::{Place, Queue, Team};
use crate::wait::is_coroutine;
use ringloop::driver::Kind;
use ringloop::executor::Local;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

thread_local! {
    static HOST: RefCell<Option<Rc<Host>>> = const { RefCell::new(None) };
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
    task: Arc<dyn Run>,
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
    next: Option<Arc<dyn Run>>,
    /// Cancelled ones that wait to unwind until no other is in the midst of it.
    deferred: Vec<u32>,
    /// Those that wait for coroutines which perhaps unwind elsewhere, and do not unwind before.
    outlasting: Vec<u32>,
    stacks: Pool,
    /// The executor's task that runs the coroutines.
    waker: Option<Waker>,
    /// It runs, or was woken already.
    awake: bool,
    closed: bool,
}

/// The coroutines of one thread.
pub(crate) struct Host {
    team: Arc<Team>,
    number: usize,
    door: Arc<Door>,
    /// Those that were spawned before `next`.
    queue: Queue,
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
    fn wake_deferred(&mut self) {
        if !self.deferred.is_empty() && !std::thread::panicking() {
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
pub(crate) fn wake_here(head: &Head) -> bool {
    let woken = HOST.try_with(|host| {
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
    HOST.with_borrow(|host| {
        host.as_ref().is_some_and(|host| {
            let inner = host.inner.borrow();
            inner.ready.is_empty() && inner.next.is_none() && host.queue.is_empty()
        })
    })
}

/// Whether the driver of the calling thread's loop waits for readiness, so that an operation is a system call of ours
/// in any case.
pub(crate) fn goes_by_readiness() -> bool {
    HOST.with_borrow(|host| host.as_ref().is_some_and(|host| host.is_readiness.get()))
}

/// Once the coroutine that runs gives up its turn, the driver has its own.
pub(crate) fn end_turn() {
    HOST.with_borrow(|host| {
        if let Some(host) = host {
            host.is_turn_over.set(true);
        }
    });
}

/// The coroutine that runs is cancelled and cannot tell whether it unwinds: it is woken once no coroutine of the
/// thread does.
pub(crate) fn defer(head: &Head) {
    HOST.with_borrow(|host| {
        if let Some(host) = host {
            host.inner.borrow_mut().deferred.push(head.slot());
        }
    });
}

/// The coroutine that runs waits for others to the end, whatever happens to it, until this is dropped.
pub(crate) fn outlast() -> Option<Outlasting> {
    let slot = with_current(|frame| frame.map(|frame| frame.head().slot()))?;
    let host = HOST.with_borrow(Option::clone)?;
    host.inner.borrow_mut().outlasting.push(slot);
    Some(Outlasting { host, slot })
}

/// See [`outlast`].
pub(crate) struct Outlasting {
    host: Rc<Host>,
    slot: u32,
}

impl Drop for Outlasting {
    fn drop(&mut self) {
        let outlasting = &mut self.host.inner.borrow_mut().outlasting;
        if let Some(place) = outlasting.iter().position(|slot| *slot == self.slot) {
            outlasting.swap_remove(place);
        }
    }
}

impl Host {
    /// The host of the loop that the calling code runs in.
    pub fn current() -> Option<Rc<Self>> {
        let host = HOST.with_borrow(Option::clone)?;
        // A thread may run one loop after the other; in a coroutine the loop is its host's.
        let is_its_loop = is_coroutine() || Local::current_id() == Some(host.loop_id.get());
        is_its_loop.then_some(host)
    }

    /// A host for the calling thread, whose stacks have so many usable bytes; the future runs its coroutines.
    pub fn open(place: Place, stack_bytes: usize) -> Hosting {
        let inner = Inner {
            slots: Vec::new(),
            free_head: None,
            ready: VecDeque::new(),
            next: None,
            deferred: Vec::new(),
            outlasting: Vec::new(),
            stacks: Pool::new(stack_bytes),
            waker: None,
            awake: true,
            closed: false,
        };
        let host = Rc::new(Self {
            team: place.team,
            number: place.number,
            door: place.door,
            queue: place.queue,
            inner: RefCell::new(inner),
            loop_id: Cell::new(Local::current_id().unwrap_or(0)),
            is_readiness: Cell::new(false),
            is_turn_over: Cell::new(false),
        });
        HOST.set(Some(Rc::clone(&host)));
        Hosting {
            host,
            _watch: overflow::watch(),
        }
    }

    /// Where other threads reach it.
    pub fn door(&self) -> &Arc<Door> {
        &self.door
    }

    /// Take a task for good: it begins here when its turn comes.
    pub fn adopt(&self, task: Arc<dyn Run>) {
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
    pub fn offer(&self, task: Arc<dyn Run>) {
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

    fn insert(&self, inner: &mut Inner, task: Arc<dyn Run>) -> u32 {
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
            return Some(slot);
        }
        let task = inner.next.take().or_else(|| self.queue.pop());
        match task {
            Some(task) => Some(self.insert(&mut inner, task)),
            None => inner.ready.pop_front(),
        }
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
        let Some(why) = fiber.resume() else {
            let mut inner = self.inner.borrow_mut();
            inner.stacks.give(fiber.into_stack());
            inner.wake_deferred();
            drop(inner);
            self.end(slot);
            return true;
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
        inner.wake_deferred();
        true
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

    /// Every coroutine unwinds, and none begins any more.
    fn shut_down(&self) {
        let arrivals = self.door.close();
        self.inner.borrow_mut().closed = true;
        let never_begun = |task: &Arc<dyn Run>| task.head().home().is_none();
        for task in arrivals.into_iter().filter(never_begun) {
            refuse(&*task);
        }
        let next = self.inner.borrow_mut().next.take();
        for task in next
            .into_iter()
            .chain(std::iter::from_fn(|| self.queue.pop()))
        {
            refuse(&*task);
        }
        let count = self.inner.borrow().slots.len();
        for slot in 0..count as u32 {
            let inner = &mut *self.inner.borrow_mut();
            if let Some(live) = inner.live(slot) {
                live.task.head().mark_cancelled();
                inner.wake(slot);
            }
        }
        self.run_ready();
        let deadline = Instant::now() + limits::OUTLAST_MAX;
        while !self.inner.borrow().outlasting.is_empty() && Instant::now() < deadline {
            // What they wait for unwinds on another worker now, which reaches this one by its door no longer.
            thread::sleep(limits::OUTLAST_PAUSE);
            let outlasting = self.inner.borrow().outlasting.clone();
            for slot in outlasting {
                self.inner.borrow_mut().wake(slot);
            }
            self.run_ready();
        }
        self.abandon();
    }

    /// Run the coroutines that are ready, at the end.
    #[cold]
    fn run_ready(&self) {
        while self.run_one(false) {}
    }

    /// Leave the stacks of those that wait in a destructor for what will not come: nothing on them may be freed.
    fn abandon(&self) {
        let mut left = Vec::new();
        {
            let inner = &mut *self.inner.borrow_mut();
            for slot in &mut inner.slots {
                if let Slot::Live(live) = slot {
                    std::mem::forget(live.fiber.take());
                    left.push(Arc::clone(&live.task));
                }
            }
            if left.is_empty() {
                return;
            }
            std::mem::forget(std::mem::replace(&mut inner.stacks, Pool::new(0)));
        }
        for task in left {
            eprintln!(
                "ringloop-coro: coroutine {} waits in a destructor for what will not come; its stack is left as it is",
                task.head()
            );
            refuse(&*task);
        }
    }
}

/// End a task that will not begin.
fn refuse(task: &dyn Run) {
    task.refuse(JoinError::Cancelled);
    task.finish();
}

/// The executor's task that runs the coroutines of a thread; dropping it cancels them.
pub(crate) struct Hosting {
    host: Rc<Host>,
    _watch: Option<Watch>,
}

impl Future for Hosting {
    type Output = std::convert::Infallible;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let host = &self.host;
        {
            let inner = &mut *host.inner.borrow_mut();
            inner.awake = true;
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

impl Drop for Hosting {
    fn drop(&mut self) {
        self.host.shut_down();
        HOST.with_borrow_mut(|current| {
            if current
                .as_ref()
                .is_some_and(|host| Rc::ptr_eq(host, &self.host))
            {
                *current = None;
            }
        });
    }
}
