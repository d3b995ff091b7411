//! An engine with its tasks: what a thread's loop is made of.
//!
//! Owns: the engine, the futures, the ready queue.
//! Called by: [`crate::Runtime`], and embedders that run the turn themselves.
//! Never does: block, or hold a borrow while a future is polled.

use super::engine::{Engine, Options};
use super::home::Home;
use super::shared::{self, Shared};
use super::team::{Seat, Team};
use super::timer::TimerKey;
use crate::driver::{Key, Sink};
use crate::error::Error;
use crate::executor::task::core as task;
use crate::executor::task::core::Next;
use crate::executor::task::core::{Arrival, Hub};
use crate::executor::task::join::JoinHandle;
#[cfg(feature = "hyper")]
use crate::executor::task::remote::{self, RemoteJoinHandle};
use crate::limits;
use crate::op::{Outcome, Request};
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker, ready};

/// Loops that were made so far, and one: the next one's number.
static LOOPS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static CURRENT: RefCell<Option<Local>> = const { RefCell::new(None) };
    /// Its number; 0 is nobody's.
    static CURRENT_ID: Cell<u64> = const { Cell::new(0) };
}

/// An engine and its tasks; a cheap handle, for one thread.
#[derive(Clone)]
pub struct Local {
    pub(super) shared: Rc<Shared>,
}

/// When an operation is tried for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// As its driver does it.
    Plain,
    /// At once, by the system call.
    Eager,
    /// Once its descriptor is ready.
    Patient,
}

/// What became of an operation at its beginning.
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
    /// Set up an engine without tasks.
    pub fn new(options: Options) -> Result<Self, Error> {
        let engine = Engine::new(options)?;
        let hub = Arc::new(Hub::new(engine.unpark(), options.inbox_messages));
        task::open_hub(&hub);
        let shared = Shared {
            id: LOOPS.fetch_add(1, Ordering::Relaxed),
            engine: RefCell::new(engine),
            hub,
            arrivals: RefCell::new(VecDeque::new()),
            dropped: RefCell::new(Vec::new()),
            returned: RefCell::new(Vec::new()),
            lent_count: Cell::default(),
            large: RefCell::default(),
            cancel_count: Cell::default(),
            closing: RefCell::new(Vec::new()),
            attempts_left: Cell::new(0),
            refused: Cell::new(0),
            seat: OnceCell::new(),
        };
        Ok(Self {
            shared: Rc::new(shared),
        })
    }

    /// Ask every operation in flight on this loop to stop; returns how many were asked. Each ends with
    /// `ECANCELED`, or with the result that won the race; timers of `time` are none.
    pub fn cancel_all(&self) -> usize {
        let cancel_count = &self.shared.cancel_count;
        cancel_count.update(|count| count.wrapping_add(1));
        self.engine().driver_mut().cancel_all()
    }

    /// How often that was asked for.
    pub(crate) fn cancels(&self) -> u32 {
        self.shared.cancel_count.get()
    }

    /// The one that the calling code runs in.
    ///
    /// # Panics
    /// Outside of a runtime, where there is nothing to run an operation on.
    #[track_caller]
    pub fn current() -> Self {
        Self::with_current(Self::clone)
    }

    /// As [`Local::current`], for as long as `look` takes: it must not call back.
    #[track_caller]
    pub(crate) fn with_current<T>(look: impl FnOnce(&Self) -> T) -> T {
        // Not from inside of a closure, whose line would be the one that the panic names.
        let looked = CURRENT.with(|current| current.borrow().as_ref().map(look));
        looked.expect(
            "no ringloop runtime on this thread: call this inside Runtime::block_on or a task",
        )
    }

    /// The one that the calling code runs in, if any.
    pub fn try_current() -> Option<Self> {
        let current = CURRENT.try_with(|current| current.try_borrow().ok()?.clone());
        current.ok().flatten()
    }

    /// The number of the one that the calling code runs in, if any: no other loop of the process has had it, nor
    /// will. 0 is nobody's.
    #[inline]
    pub fn current_id() -> Option<u64> {
        Some(CURRENT_ID.get()).filter(|id| *id != 0)
    }

    /// Whether the calling code runs in it.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        CURRENT_ID.get() == self.shared.id
    }

    /// Have the driver forget a descriptor that its owner keeps, or closes by other means: its operations are over
    /// or given up. Waits for those that a thread may be at, or a link, [`limits::DRAIN_TIMEOUT_MS`] at most.
    pub fn release(&self, fd: RawFd) {
        self.home().release(fd);
    }

    /// Close a descriptor whose operations are over or given up: now, or once no thread and no link may name it.
    pub fn close(&self, fd: OwnedFd) {
        self.home().close(fd);
    }

    /// Whether the loop was made before a fork and this is the child, where nothing of it runs any more
    /// ([`Error::Inherited`]).
    pub fn is_inherited(&self) -> bool {
        self.shared.hub.is_inherited()
    }

    /// Make this the thread's current one while the guard lives.
    pub fn enter(&self) -> Entered {
        let previous = CURRENT.with(|current| current.replace(Some(self.clone())));
        CURRENT_ID.set(self.shared.id);
        Entered { previous }
    }

    /// The engine, for the moment: the borrow must end before anything is called that may come back.
    pub fn engine(&self) -> RefMut<'_, Engine> {
        self.shared.engine.borrow_mut()
    }

    /// Cancel an operation whose future was dropped.
    pub(crate) fn forget(&self, key: Key) {
        match self.shared.engine.try_borrow_mut() {
            Ok(mut engine) => engine.driver_mut().forget(key),
            Err(_) => self.shared.dropped.borrow_mut().push(key),
        }
    }

    /// Forget a timer whose future was dropped. One that cannot be reached now is left to fire: its
    /// waker does no harm.
    pub(crate) fn remove_timer(&self, key: TimerKey) {
        if let Ok(mut engine) = self.shared.engine.try_borrow_mut() {
            engine.timers_mut().remove(key);
        }
    }

    /// The home of the loop that the calling code runs in, if any.
    pub(crate) fn current_home() -> Option<Home> {
        Self::try_current().map(|local| local.home())
    }

    /// Whether it is this loop's.
    pub(crate) fn is_home(&self, home: &Home) -> bool {
        home.is(&self.shared)
    }

    /// The loop, for a descriptor that is used with its driver and may outlive it.
    pub(crate) fn home(&self) -> Home {
        Home::of(&self.shared)
    }

    /// Start a task on this loop.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        JoinHandle {
            task: task::start(&self.shared.hub, future),
        }
    }

    /// Start a task on this loop, with a handle that may leave the thread.
    #[cfg(feature = "hyper")]
    pub(crate) fn spawn_remote<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> RemoteJoinHandle<T> {
        let (settle, handle) = remote::pair();
        drop(self.spawn(remote::drive(future, settle)));
        handle
    }

    /// Poll the tasks that were ready when the call began, up to a bound. Returns whether more wait.
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

    /// Take what other threads have sent, and what was given up while the engine was borrowed.
    pub(crate) fn tidy(&self) {
        if self.shared.hub.has_arrivals() {
            self.take_arrivals();
        }
        for key in self.shared.dropped.take() {
            self.engine().driver_mut().forget(key);
        }
        for lease in self.shared.returned.take() {
            self.engine().driver_mut().give_back(lease);
        }
        for fd in self.shared.closing.take() {
            self.engine().driver_mut().close(fd);
        }
    }

    fn take_arrivals(&self) {
        let mut arrivals = self.shared.arrivals.take();
        self.shared.hub.take_arrivals(&mut arrivals);
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Wake(wake) => wake.arrive(),
                Arrival::Start(start) => start(&self.shared.hub),
            }
        }
        // Its memory serves the next batch.
        self.shared.arrivals.replace(arrivals);
    }

    /// A task is about to be polled, with a new allowance of operations that are done at once
    /// ([`limits::ATTEMPTS_PER_POLL`]). A task that runs others calls it before each.
    pub fn begin_poll(&self) {
        self.shared.attempts_left.set(limits::ATTEMPTS_PER_POLL);
    }

    /// Count something that was over when it was asked for, as what is done at once; `false`: this poll has had
    /// its share.
    pub(crate) fn spend_attempt(&self) -> bool {
        let left = self.shared.attempts_left.get();
        self.shared.attempts_left.set(left.saturating_sub(1));
        left > 0
    }

    /// As [`Self::spend_attempt`], of the one that the calling code runs in; where none runs nobody is kept waiting. An
    /// executor inside of a task begins no polls, and has a new share after some refusals: it must come to an end.
    pub(crate) fn spend_share() -> bool {
        let spent = CURRENT.try_with(|current| {
            let current = current.try_borrow().ok()?;
            let local = current.as_ref()?;
            let may = local.spend_attempt();
            if !may {
                let refused = local.shared.refused.get() + 1;
                local
                    .shared
                    .refused
                    .set(refused % limits::ATTEMPTS_PER_POLL);
                if refused == limits::ATTEMPTS_PER_POLL {
                    local.begin_poll();
                }
            }
            Some(may)
        });
        spent.ok().flatten().unwrap_or(true)
    }

    /// Whether the running task is the only one with something to do: what it asks for would go to the kernel as a
    /// batch of one.
    pub(crate) fn is_alone(&self) -> bool {
        !self.has_ready() && self.engine().driver_mut().has_no_batch()
    }

    /// Begin an operation: do it at once, by the driver's own judgement, or submit it.
    pub(crate) fn begin(&self, mut request: Request, beginning: Beginning, waker: &Waker) -> Begun {
        let mut engine = self.engine();
        let driver = engine.driver_mut();
        let is_patient = beginning == Beginning::Patient;
        if !is_patient
            && (driver.tries_first() || beginning == Beginning::Eager)
            && let Some(left) = self.shared.attempts_left.get().checked_sub(1)
            && let Some(result) = driver.attempt(&mut request)
        {
            self.shared.attempts_left.set(left);
            return Begun::Over(Outcome::of(result, request));
        }
        Begun::InFlight(driver.submit_as(request, Sink::Waker(waker.clone()), is_patient))
    }

    /// A buffer for bytes that come in bulk, to be received behind what it holds ([`limits::LARGE_BUFFER_BYTES`]): the
    /// one that was used last; `None` where all are held.
    pub(crate) fn large_buffer(&self) -> Option<Vec<u8>> {
        self.shared.large.borrow_mut().take()
    }

    /// Give such a buffer back; an empty vector stands for one that is lost.
    pub(crate) fn keep_large(&self, buffer: Vec<u8>) {
        self.shared.large.borrow_mut().keep(buffer);
    }

    /// Poll the task that has been ready for the longest time; `false` where none is.
    #[inline]
    pub(crate) fn run_one(&self) -> bool {
        self.begin_poll();
        // The queue is free again before the task runs.
        let next = Next::of(&self.shared.hub);
        next.map(Next::run).is_some()
    }

    /// Whether nothing that this loop knows of will wake a task: none is ready, and there is no message, operation,
    /// timer or call on a pool thread. Then how many pool threads it has, all of them idle.
    pub fn waits_for_nothing(&self) -> Option<usize> {
        let mut engine = self.shared.engine.try_borrow_mut().ok()?;
        let busy = self.has_ready()
            || !self.shared.hub.is_inbox_empty()
            || engine.driver_mut().in_flight() > 0
            || engine.timers_mut().live_count() > 0;
        if busy {
            None
        } else {
            engine.blocking_pool().idle_threads()
        }
    }

    /// Whether tasks are ready.
    pub(crate) fn has_ready(&self) -> bool {
        self.shared.hub.ready_count() > 0
    }

    /// Where other threads reach this loop.
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.shared.hub
    }

    /// Make this loop one of a runtime's workers.
    pub(crate) fn sit(&self, team: Arc<Team>, worker: usize) {
        // A loop is seated once, by whoever made it.
        drop(self.shared.seat.set(Seat { team, worker }));
    }

    /// Which worker this is; a loop that is nobody's is a team of its own.
    pub(crate) fn seat(&self) -> Seat {
        let alone = || Seat {
            team: Team::of_one(self.hub()),
            worker: 0,
        };
        self.shared.seat.get_or_init(alone).clone()
    }

    /// Drop every task: their operations are cancelled, and their handles told.
    pub(crate) fn shut_down(&self) {
        shared::cancel_tasks(&self.shared.hub);
        drop(self.shared.hub.close_inbox());
    }
}

/// Start a task on the loop that the calling code runs in.
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    Local::with_current(|local| local.spawn(future))
}

/// What an operation of one result has ended with.
#[inline(always)]
pub(crate) fn poll_outcome(local: &Local, key: Key, waker: &Waker) -> Poll<Outcome> {
    let mut engine = local.engine();
    let polled = engine.driver_mut().poll(key, waker, |request| request);
    Poll::Ready(match ready!(polled) {
        Some((taken, request)) => Outcome {
            result: taken.result(),
            request: request.flatten(),
        },
        // The driver was torn down under the future.
        None => Outcome {
            result: Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            request: None,
        },
    })
}
