//! The coroutines of one thread: who is ready, and their turn.
//!
//! Owns: the table of its coroutines with their stacks, the ready queue, the pool of stacks, the door at which other
//! threads knock. Called by: the engine's executor, one of whose tasks it is ([`Hosting`]), and by wakers.
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

use crate::join::JoinError;
use crate::limits;
use crate::stack::Pool;
use crate::switch::{Fiber, Suspend};
use crate::task::{Head, Run};
use ringloop::executor::Local;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

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
    stacks: Pool,
    /// The executor's task that runs the coroutines.
    waker: Option<Waker>,
    /// It runs, or was woken already.
    awake: bool,
    closed: bool,
}

/// The coroutines of one thread.
pub(crate) struct Host {
    door: Arc<Door>,
    inner: RefCell<Inner>,
    /// How many are not over.
    live_count: Cell<usize>,
}

/// Where other threads reach a host.
#[derive(Default)]
pub(crate) struct Door(Mutex<Arrivals>);

#[derive(Default)]
struct Arrivals {
    /// Coroutines that were woken elsewhere.
    woken: Vec<Arc<dyn Run>>,
    waker: Option<Waker>,
    closed: bool,
}

impl Door {
    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        // Nothing can panic while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wake a coroutine of this host's.
    pub fn send(&self, task: Arc<dyn Run>) {
        let waker = {
            let mut arrivals = self.lock();
            if arrivals.closed {
                return;
            }
            arrivals.woken.push(task);
            if arrivals.woken.len() > 1 {
                return;
            }
            arrivals.waker.clone()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
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

impl Host {
    /// The host of the calling thread.
    pub fn current() -> Option<Rc<Self>> {
        HOST.with_borrow(Option::clone)
    }

    /// A host for the calling thread, whose stacks have so many usable bytes; the future runs its coroutines.
    pub fn open(stack_bytes: usize) -> Hosting {
        let inner = Inner {
            slots: Vec::new(),
            free_head: None,
            ready: VecDeque::new(),
            stacks: Pool::new(stack_bytes),
            waker: None,
            awake: true,
            closed: false,
        };
        let host = Rc::new(Self {
            door: Arc::default(),
            inner: RefCell::new(inner),
            live_count: Cell::new(0),
        });
        HOST.set(Some(Rc::clone(&host)));
        Hosting { host }
    }

    /// Take a task: it begins when its turn comes.
    pub fn adopt(&self, task: Arc<dyn Run>) {
        let mut inner = self.inner.borrow_mut();
        if inner.closed {
            drop(inner);
            task.refuse(JoinError::Cancelled);
            return task.finish();
        }
        let slot = inner.insert(Live {
            task: Arc::clone(&task),
            fiber: None,
            phase: Phase::Queued,
        });
        task.head().settle(&self.door, slot);
        self.live_count.set(self.live_count.get() + 1);
        inner.ready.push_back(slot);
        inner.call();
    }

    /// Give the coroutine that has been ready for the longest time its turn; `false` where none is.
    fn run_one(&self) -> bool {
        let Some(slot) = self.inner.borrow_mut().ready.pop_front() else {
            return false;
        };
        let Some(mut fiber) = self.fiber(slot) else {
            self.end(slot);
            return true;
        };
        Local::renew_attempts();
        let Some(why) = fiber.resume() else {
            self.inner.borrow_mut().stacks.give(fiber.into_stack());
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
        true
    }

    /// The stack of a coroutine whose turn it is; `None` where it will not have one.
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
            self.live_count.set(self.live_count.get() - 1);
            live.task.finish();
        }
    }

    /// Take what other threads have sent.
    fn arrivals(&self, waker: &Waker) {
        let woken = {
            let mut arrivals = self.door.lock();
            if !arrivals
                .waker
                .as_ref()
                .is_some_and(|known| known.will_wake(waker))
            {
                arrivals.waker = Some(waker.clone());
            }
            std::mem::take(&mut arrivals.woken)
        };
        for task in woken {
            task.head().answer();
            if !task.head().is_over() {
                self.inner.borrow_mut().wake(task.head().slot());
            }
        }
    }

    /// Every coroutine unwinds, and none begins any more.
    fn shut_down(&self) {
        let closed = Arrivals {
            closed: true,
            ..Arrivals::default()
        };
        drop(std::mem::replace(&mut *self.door.lock(), closed));
        self.inner.borrow_mut().closed = true;
        let count = self.inner.borrow().slots.len();
        for slot in 0..count as u32 {
            let inner = &mut *self.inner.borrow_mut();
            if let Some(live) = inner.live(slot) {
                live.task.head().mark_cancelled();
                inner.wake(slot);
            }
        }
        while self.run_one() {}
    }
}

/// The executor's task that runs the coroutines of a thread; dropping it cancels them.
pub(crate) struct Hosting {
    host: Rc<Host>,
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
        let mut left = limits::RESUMES_PER_TURN;
        while left > 0 && host.run_one() {
            left -= 1;
        }
        let inner = &mut *host.inner.borrow_mut();
        inner.awake = false;
        if !inner.ready.is_empty() {
            inner.call();
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
