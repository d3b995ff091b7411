//! An engine with its tasks: the loop of a thread.
//!
//! Owns: the engine, the futures, the ready queue. Called by: [`crate::Runtime`], and embedders
//! that run the turn themselves. Does not block, and holds no borrow while it polls a future.

use super::engine::{Engine, Options};
use super::shared::{self, Shared};
use super::team::{Team, TeamMember};
use super::timer::TimerKey;
use super::weak::WeakLocal;
use crate::driver::{Key, Sink};
use crate::error::Error;
use crate::executor::task::core as task;
use crate::executor::task::core::Next;
use crate::executor::task::core::{Arrival, Hub};
use crate::executor::task::join::JoinHandle;
use crate::executor::task::listed::listed;
#[cfg(feature = "hyper")]
use crate::executor::task::remote::{self, RemoteJoinHandle};
use crate::limits;
use crate::op::{Outcome, Request};
use crate::sys::fd::{OwnedFd, RawFd};
use crate::sys::libc;
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};

/// The next loop's number.
static LOOPS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static CURRENT: RefCell<Option<Local>> = const { RefCell::new(None) };
    /// The current loop's number; 0 is none.
    static CURRENT_ID: Cell<u64> = const { Cell::new(0) };
}

/// An engine and its tasks; a cheap handle, for one thread.
#[derive(Clone)]
pub struct Local {
    pub(super) shared: Rc<Shared>,
}

/// How an operation is first tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartMode {
    /// The driver's default.
    DriverDefault,
    /// Try-first: at once, by the system call.
    TryFirst,
    /// Poll-first: once its descriptor is ready.
    PollFirst,
}

/// Outcome of beginning an operation.
pub(crate) enum Begun {
    Over(Outcome),
    InFlight(Key),
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local")
            .field("ready", &self.shared.hub.ready_count())
            .finish_non_exhaustive()
    }
}

/// Makes a [`Local`] the thread's current one until it is dropped.
#[derive(Debug)]
pub struct Entered {
    previous: Option<Local>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let previous = self.previous.take();
        CURRENT_ID.set(previous.as_ref().map_or(0, |local| local.shared.id));
        CURRENT.with(|current| current.replace(previous));
    }
}

impl Local {
    /// Creates an engine without tasks.
    pub fn new(options: Options) -> Result<Self, Error> {
        Ok(Self::of_engine(Engine::new(options)?, options.inbox_messages))
    }

    /// Lets an engine that an embedder already turns have tasks, on the calling thread from now on.
    /// Its inbox takes `inbox_messages` messages of other threads.
    pub fn of_engine(engine: Engine, inbox_messages: usize) -> Self {
        let hub = Arc::new(Hub::new(engine.unpark(), inbox_messages));
        task::open_hub(&hub);
        let shared = Shared {
            id: LOOPS.fetch_add(1, Ordering::Relaxed),
            engine: RefCell::new(engine),
            hub,
            arrivals: RefCell::new(VecDeque::new()),
            dropped: RefCell::new(Vec::new()),
            held_count: Cell::default(),
            large: RefCell::default(),
            cancel_count: Cell::default(),
            closing: RefCell::new(Vec::new()),
            attempts_left: Cell::new(0),
            polls_spent: Cell::new(0),
            refused: Cell::new(0),
            member: OnceCell::new(),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Cancels every operation in flight on this loop; returns how many. Each ends with
    /// `ECANCELED`, or with its own result if that came first. Timers of `time` are not operations.
    pub fn cancel_all(&self) -> usize {
        let cancel_count = &self.shared.cancel_count;
        cancel_count.update(|count| count.wrapping_add(1));
        self.engine().driver_mut().cancel_all()
    }

    /// How often [`Local::cancel_all`] was called.
    pub(crate) fn cancels(&self) -> u32 {
        self.shared.cancel_count.get()
    }

    /// The current loop.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn current() -> Self {
        Self::with_current(Self::clone)
    }

    /// Calls `look`, which must not call back, with the current loop.
    #[track_caller]
    pub(crate) fn with_current<T>(look: impl FnOnce(&Self) -> T) -> T {
        // Not inside the closure: the panic would name the closure's line.
        let looked = CURRENT.with(|current| current.borrow().as_ref().map(look));
        looked.expect(
            "no ringloop runtime on this thread: call this inside Runtime::block_on or a task",
        )
    }

    /// The current loop, if any.
    pub fn try_current() -> Option<Self> {
        let current = CURRENT.try_with(|current| current.try_borrow().ok()?.clone());
        current.ok().flatten()
    }

    /// The number of the current loop, if any, unique within the process. Never 0.
    #[inline]
    pub fn current_id() -> Option<u64> {
        Some(CURRENT_ID.get()).filter(|id| *id != 0)
    }

    /// True if this is the current loop.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        CURRENT_ID.get() == self.shared.id
    }

    /// Makes the driver forget a descriptor that stays open, or is closed by other means: its
    /// operations have ended or been cancelled. Waits while a thread or a link may still use it,
    /// for [`limits::DRAIN_TIMEOUT_MS`] at most.
    pub fn release(&self, fd: RawFd) {
        self.downgrade().release(fd);
    }

    /// Closes a descriptor whose operations have ended or been cancelled: now, or once no thread
    /// and no link may name it.
    pub fn close(&self, fd: OwnedFd) {
        self.downgrade().close(fd);
    }

    /// True in a forked child of the process that made the loop: it does not run there
    /// ([`Error::Inherited`]).
    pub fn is_inherited(&self) -> bool {
        self.shared.hub.inbox.is_inherited()
    }

    /// Makes this the current loop of the thread while the guard lives.
    pub fn enter(&self) -> Entered {
        let previous = CURRENT.with(|current| current.replace(Some(self.clone())));
        CURRENT_ID.set(self.shared.id);
        Entered { previous }
    }

    /// The engine. End the borrow before any call that may come back to this loop.
    pub fn engine(&self) -> RefMut<'_, Engine> {
        self.shared.engine.borrow_mut()
    }

    /// Cancels an operation whose future was dropped.
    pub(crate) fn forget(&self, key: Key) {
        match self.shared.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().forget(key),
            Err(_) => self.shared.dropped.borrow_mut().push(key),
        }
    }

    /// Removes a timer whose future was dropped. If the engine is borrowed, the timer is left to
    /// fire, which is harmless.
    pub(crate) fn remove_timer(&self, key: TimerKey) {
        if let Ok(mut engine) = self.shared.engine.try_borrow_mut() {
            engine.timers_mut().remove(key);
        }
    }

    /// A weak handle to the current loop, if any.
    pub(crate) fn current_weak() -> Option<WeakLocal> {
        Self::try_current().map(|local| local.downgrade())
    }

    /// True if the handle is this loop's.
    pub(crate) fn is_target_of(&self, weak_local: &WeakLocal) -> bool {
        weak_local.is(&self.shared)
    }

    /// A weak handle to this loop.
    pub(crate) fn downgrade(&self) -> WeakLocal {
        WeakLocal::of(&self.shared)
    }

    /// Starts a task on this loop.
    #[track_caller]
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.spawn_unlisted(listed(future, Location::caller()))
    }

    /// Starts a task that is not on the list of tasks.
    pub(crate) fn spawn_unlisted<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> JoinHandle<T> {
        JoinHandle { task: task::start(&self.shared.hub, future) }
    }

    /// Starts a task on this loop and polls it at once, before other ready tasks: if it need not
    /// wait, it is over on return.
    pub fn spawn_polled<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> JoinHandle<T> {
        let handle = self.spawn(future);
        self.begin_poll();
        // The queue's borrow ends before the task runs.
        let newest = Next::newest_of(&self.shared.hub);
        if let Some(newest) = newest {
            newest.run();
        }
        handle
    }

    /// Starts a task on this loop, with a handle that may leave the thread.
    #[cfg(feature = "hyper")]
    pub(crate) fn spawn_remote<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> RemoteJoinHandle<T> {
        let (settle, handle) = remote::pair();
        drop(self.spawn(remote::drive(future, settle)));
        handle
    }

    /// Polls the tasks that were ready when the call began, up to a cap. Returns true if more are
    /// ready.
    pub fn run_tasks(&self) -> bool {
        self.tidy();
        let count = self.shared.hub.ready_count().min(limits::TASKS_PER_TURN);
        for _ in 0..count {
            if !self.run_one() {
                break;
            }
        }
        self.has_ready()
    }

    /// Takes messages of other threads, and what was dropped while the engine was borrowed.
    pub(crate) fn tidy(&self) {
        if self.shared.hub.inbox.holds_any() {
            self.take_arrivals();
        }
        for key in self.shared.dropped.take() {
            self.engine().driver_mut().forget(key);
        }
        for fd in self.shared.closing.take() {
            self.engine().driver_mut().close(fd);
        }
    }

    fn take_arrivals(&self) {
        let mut arrivals = self.shared.arrivals.take();
        self.shared.hub.inbox.take(&mut arrivals);
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Wake(wake) => wake.arrive(),
                Arrival::Start(start) => start(&self.shared.hub),
            }
        }
        // Its memory is reused for the next batch.
        self.shared.arrivals.replace(arrivals);
    }

    /// Renews the budget of operations that one poll may complete at once
    /// ([`limits::ATTEMPTS_PER_POLL`]). Called before each poll of a task, also by a task that runs
    /// others.
    pub fn begin_poll(&self) {
        self.shared.attempts_left.set(limits::ATTEMPTS_PER_POLL);
    }

    /// Spends one unit of the budget, for an operation that completes at once; `false`: the budget
    /// is used up.
    pub(crate) fn spend_attempt(&self) -> bool {
        let left = self.shared.attempts_left.get();
        self.shared.attempts_left.set(left.saturating_sub(1));
        left > 0
    }

    /// Like [`Self::spend_attempt`], for the current loop; unlimited without one. An executor
    /// inside a task never renews the budget, so it is renewed after some refusals.
    pub(crate) fn spend_budget() -> bool {
        let spent = CURRENT.try_with(|current| {
            let current = current.try_borrow().ok()?;
            let local = current.as_ref()?;
            let may = local.spend_attempt();
            if !may {
                let refused = local.shared.refused.get() + 1;
                local.shared.refused.set(refused % limits::ATTEMPTS_PER_POLL);
                if refused == limits::ATTEMPTS_PER_POLL {
                    local.begin_poll();
                }
            }
            Some(may)
        });
        spent.ok().flatten().unwrap_or(true)
    }

    /// Wakes the running task, which is polled again once the driver has been: a task that always has
    /// more to do delays neither timers nor sockets.
    #[cold]
    pub(crate) fn next_turn<T>(cx: &Context<'_>) -> Poll<T> {
        Self::poll_again(cx, limits::TASKS_PER_TURN)
    }

    /// Wakes the running task, which has yielded, and counts for as many polls of the turn.
    pub(crate) fn poll_again<T>(cx: &Context<'_>, polls: usize) -> Poll<T> {
        if let Some(local) = Self::try_current() {
            local.spend_turn(polls);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Has the driver polled once the tasks that are ready now have run.
    pub fn end_turn(&self) {
        self.spend_turn(limits::TASKS_PER_TURN);
    }

    fn spend_turn(&self, polls: usize) {
        self.shared.polls_spent.update(|spent| spent.saturating_add(polls));
    }

    /// Polls that tasks have given up since the last call.
    pub(super) fn take_polls_spent(&self) -> usize {
        self.shared.polls_spent.take()
    }

    /// True if no other task is ready and no submission is pending: an operation would be submitted
    /// in a batch of one.
    pub(crate) fn is_alone(&self) -> bool {
        !self.has_ready() && self.engine().driver_mut().has_no_batch()
    }

    /// Begins an operation: completes it at once if the driver can, or submits it.
    pub(crate) fn begin(&self, mut request: Request, mode: StartMode, waker: &Waker) -> Begun {
        let mut engine = self.engine();
        let driver = engine.driver_mut();
        let poll_first = mode == StartMode::PollFirst;
        if !poll_first
            && (driver.tries_first() || mode == StartMode::TryFirst)
            && let Some(left) = self.shared.attempts_left.get().checked_sub(1)
            && let Some(result) = driver.attempt(&mut request)
        {
            self.shared.attempts_left.set(left);
            return Begun::Over(Outcome::of(result, request));
        }
        Begun::InFlight(driver.submit_as(request, Sink::Waker(waker.clone()), poll_first))
    }

    /// The most recently used large buffer, for a bulk receive after the bytes it holds
    /// ([`limits::LARGE_BUFFER_BYTES`]); `None` if all are held.
    pub(crate) fn large_buffer(&self) -> Option<Vec<u8>> {
        self.shared.large.borrow_mut().take()
    }

    /// Returns a large buffer; an empty vector replaces a lost buffer.
    pub(crate) fn keep_large(&self, buffer: Vec<u8>) {
        self.shared.large.borrow_mut().keep(buffer);
    }

    /// Polls the task that has been ready the longest; `false` if none is.
    #[inline]
    pub(crate) fn run_one(&self) -> bool {
        self.begin_poll();
        // The queue's borrow ends before the task runs.
        let next = Next::of(&self.shared.hub);
        next.map(Next::run).is_some()
    }

    /// Number of pool threads, all idle, if nothing known to this loop will wake a task: there is no
    /// ready task, message, operation, timer or blocking call. `None` otherwise.
    pub fn quiescent(&self) -> Option<usize> {
        let mut engine = self.shared.engine.try_borrow_mut().ok()?;
        let busy = self.has_ready()
            || !self.shared.hub.inbox.is_empty()
            || engine.driver_mut().in_flight() > 0
            || engine.timers_mut().live_count() > 0;
        if busy { None } else { engine.blocking_pool().idle_threads() }
    }

    /// True if tasks are ready.
    pub fn has_ready(&self) -> bool {
        self.shared.hub.ready_count() > 0
    }

    /// The part of this loop that other threads use.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.shared.hub
    }

    /// Makes this loop one of a runtime's workers.
    pub(crate) fn join_team(&self, team: Arc<Team>, worker: usize) {
        // Set once, by the creator of the loop.
        drop(self.shared.member.set(TeamMember { team, worker }));
    }

    /// This loop's team and worker number; a loop without a runtime is a team of one.
    pub(crate) fn member(&self) -> TeamMember {
        let alone = || TeamMember { team: Team::solo(self.hub()), worker: 0 };
        self.shared.member.get_or_init(alone).clone()
    }

    /// Drops every task: cancels their operations, and completes their handles. No message of another
    /// thread is taken after it.
    pub fn shut_down(&self) {
        shared::cancel_tasks(&self.shared.hub);
        drop(self.shared.hub.inbox.close());
    }
}

/// Starts a task on the current loop.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let spawned_at = Location::caller();
    Local::with_current(|local| local.spawn_unlisted(listed(future, spawned_at)))
}

/// Polls a single-shot operation for its outcome.
#[inline(always)]
pub(crate) fn poll_outcome(local: &Local, key: Key, waker: &Waker) -> Poll<Outcome> {
    let mut engine = local.engine();
    let polled = engine.driver_mut().poll(key, waker, |request| request);
    Poll::Ready(match ready!(polled) {
        Some((taken, request)) => Outcome { result: taken.result(), request: request.flatten() },
        // The driver was closed under the future.
        None => {
            Outcome { result: Err(io::Error::from_raw_os_error(libc::ECANCELED)), request: None }
        }
    })
}
