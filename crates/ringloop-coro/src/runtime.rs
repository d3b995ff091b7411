//! Starting a runtime of coroutines, and spawning coroutines in it.
//!
//! Owns: [`start`], [`Builder`], [`Spawn`], [`Spawner`]. Called by: applications; `scope` spawns by
//! it. Coroutines run in the `scheduler` of each worker.

use crate::deadlock::{self, DeadlockDetector};
use crate::error::JoinError;
use crate::inbox::Inbox;
use crate::join::JoinHandle;
use crate::limits;
use crate::scheduler::Scheduler;
use crate::switch::with_current;
use crate::task::{Joinable, Runnable, SpawnOptions, Task, reject};
use crate::unwind;
use crate::workers::worker_parts;
use ringloop::Choice;
use ringloop::Error;
use ringloop::embed::Local;
use ringloop::future::{Either, select};
use std::future::poll_fn;
use std::io;
use std::panic::{Location, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Runs `main` as the first coroutine of a runtime with `workers` threads, the calling one among
/// them, and returns its result. Coroutines that are left when it ends are cancelled.
///
/// ```
/// let sum = ringloop_coro::start(1, || {
///     let parts: Vec<_> = (1..=3).map(|n| ringloop_coro::spawn(move || n * n)).collect();
///     parts.into_iter().map(|part| part.join().unwrap()).sum::<i32>()
/// })?;
/// assert_eq!(sum, 14);
/// # Ok::<(), ringloop::Error>(())
/// ```
///
/// # Errors
/// A driver, ring or thread that the system refuses; a thread on which an earlier runtime had to
/// abandon a coroutine in a destructor: use another thread.
///
/// # Panics
/// With the panic of `main`; inside of a coroutine. In a debug build, with the list of the
/// coroutines, if all of them are parked and nothing can wake one (and the process has no other
/// threads).
#[track_caller]
pub fn start<T: 'static>(workers: usize, main: impl FnOnce() -> T + 'static) -> Result<T, Error> {
    Builder::new().workers(workers).start(main)
}

/// Settings of a runtime of coroutines.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until start() is called"]
pub struct Builder {
    runtime: ringloop::Builder,
    stack_bytes: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            runtime: ringloop::Runtime::builder().thread_name("coro"),
            stack_bytes: limits::STACK_BYTES,
        }
    }
}

impl Builder {
    /// One worker, the driver that `RINGLOOP_DRIVER` names or the best available, stacks of
    /// [`limits::STACK_BYTES`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of threads that run coroutines, the calling one among them.
    pub fn workers(mut self, count: usize) -> Self {
        self.runtime = self.runtime.workers(count);
        self
    }

    /// The threads' name, to which their number is added.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.runtime = self.runtime.thread_name(name);
        self
    }

    /// The driver to use.
    pub fn driver(mut self, driver: Choice) -> Self {
        self.runtime = self.runtime.driver(driver);
        self
    }

    /// Usable bytes of each coroutine's stack, from [`limits::STACK_BYTES_MIN`] to
    /// [`limits::STACK_BYTES_MAX`]. A page costs memory once it is touched.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// Runs `main` as the first coroutine; see [`start`].
    ///
    /// # Errors
    /// As [`start`].
    ///
    /// # Panics
    /// As [`start`].
    #[track_caller]
    pub fn start<T: 'static>(self, main: impl FnOnce() -> T + 'static) -> Result<T, Error> {
        assert!(
            with_current(|frame| frame.is_none()),
            "a runtime was started inside of a coroutine, whose thread it would stop: spawn in the runtime that there is, \
             or start another one on a thread of its own"
        );
        unwind::check_thread().map_err(io::Error::other)?;
        let spawned_at = Location::caller();
        let runtime = self.runtime.build()?;
        let stack_bytes = self.stack_bytes;
        let count = runtime.workers().count();
        let detector = deadlock::ENABLED.then(|| DeadlockDetector::new(count));
        let mut set = None;
        for parts in worker_parts(count, detector) {
            set.get_or_insert_with(|| Arc::clone(&parts.set));
            match parts.index {
                0 => drop(runtime.spawn(Scheduler::open(parts, stack_bytes))),
                index => {
                    let open = move || Scheduler::open(parts, stack_bytes);
                    drop(runtime.workers().spawn_on(index, open)?);
                }
            }
        }
        let ended = runtime.block_on(async move {
            let main = Spawn::new().name("main").spawn_here(spawned_at, main);
            let detector = set.as_ref().and_then(|set| set.detector.as_ref());
            let deadlock = poll_fn(|cx| match detector {
                Some(detector) => detector.poll(cx),
                None => Poll::Pending,
            });
            select(main, deadlock).await
        })?;
        runtime.shut_down()?;
        match ended {
            Either::Left(Ok(value)) => Ok(value),
            Either::Left(Err(JoinError::Panicked(payload))) => resume_unwind(payload),
            Either::Left(Err(JoinError::Cancelled)) => Err(Error::Closed),
            Either::Left(Err(JoinError::Refused(error))) => Err(error.into()),
            Either::Right(deadlock) => panic!("{deadlock}"),
        }
    }
}

/// The scheduler of the calling thread; opened here for a loop that has none.
fn scheduler() -> Rc<Scheduler> {
    Scheduler::current().unwrap_or_else(|| {
        let Some(local) = Local::try_current() else {
            panic!(
                "a coroutine was spawned outside of a runtime: use ringloop_coro::start, or spawn inside of a \
                 ringloop::Runtime"
            );
        };
        if let Err(reason) = unwind::check_thread() {
            panic!("{reason}");
        }
        for parts in worker_parts(1, None) {
            drop(local.spawn(Scheduler::open(parts, limits::STACK_BYTES)));
        }
        scheduler()
    })
}

/// Starts a coroutine on any worker of the current runtime.
///
/// It may begin on another thread, so the closure and its result are `Send`. Once it has begun it
/// never leaves its thread, and what it makes there need not be `Send`.
/// ```compile_fail,E0277
/// let local = std::rc::Rc::new(1);
/// ringloop_coro::start(1, move || drop(ringloop_coro::spawn(move || *local)));
/// ```
/// ```
/// let sum = ringloop_coro::start(1, || {
///     let coroutine = ringloop_coro::spawn(|| {
///         let local = std::rc::Rc::new(1);
///         ringloop_coro::yield_now();
///         *local + 1
///     });
///     coroutine.join().unwrap()
/// })?;
/// assert_eq!(sum, 2);
/// # Ok::<(), ringloop::Error>(())
/// ```
///
/// # Panics
/// Outside of a runtime; on a thread that [`start`] refuses.
#[track_caller]
pub fn spawn<T, F>(closure: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Spawn::new().spawn(closure)
}

/// Starts a coroutine on the calling thread, where it stays: neither its closure nor its result
/// need be `Send`.
///
/// # Panics
/// Outside of a runtime; on a thread that [`start`] refuses.
#[track_caller]
pub fn spawn_local<T, F>(closure: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    Spawn::new().spawn_local(closure)
}

/// Settings of one coroutine: its name, the size of its stack.
///
/// ```
/// use ringloop_coro::Spawn;
///
/// ringloop_coro::start(1, || {
///     let deep = Spawn::new().name("deep").stack_size(1 << 20);
///     let name = deep.spawn(ringloop_coro::name).join().unwrap();
///     assert_eq!(name.as_deref(), Some("deep"));
/// })?;
/// # Ok::<(), ringloop::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a coroutine is started by spawn() or spawn_local()"]
pub struct Spawn {
    options: SpawnOptions,
}

impl Spawn {
    /// No name, and the runtime's stack size.
    pub fn new() -> Self {
        Self::default()
    }

    /// The coroutine's name in messages.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into().into_boxed_str());
        self
    }

    /// Usable bytes of its stack; see [`Builder::stack_size`].
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.options.stack_bytes = Some(bytes);
        self
    }

    /// See [`spawn`].
    ///
    /// # Panics
    /// As [`spawn`].
    #[track_caller]
    pub fn spawn<T, F>(self, closure: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let task = Task::new(self.options, Location::caller(), closure);
        scheduler().spawn(Arc::clone(&task) as Arc<dyn Runnable>);
        JoinHandle::new(task)
    }

    /// See [`spawn_local`].
    ///
    /// # Panics
    /// As [`spawn_local`].
    #[track_caller]
    pub fn spawn_local<T, F>(self, closure: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        self.spawn_here(Location::caller(), closure)
    }

    fn spawn_here<T: 'static>(
        self,
        spawned_at: &'static Location<'static>,
        closure: impl FnOnce() -> T + 'static,
    ) -> JoinHandle<T> {
        let task = Task::new(self.options, spawned_at, closure);
        scheduler().spawn_local(Arc::clone(&task) as Arc<dyn Runnable>);
        JoinHandle::new(task)
    }

    /// See [`Spawner::spawn`].
    #[track_caller]
    pub fn spawn_by<T, F>(self, spawner: &Spawner, closure: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let task = Task::new(self.options, Location::caller(), closure);
        if let Err(task) = spawner.inbox.send(Arc::clone(&task) as Arc<dyn Runnable>) {
            reject(&*task);
        }
        JoinHandle::new(task as Arc<dyn Joinable<T>>)
    }
}

/// Starts coroutines on one worker from any thread; [`spawner`] makes one.
#[derive(Clone)]
pub struct Spawner {
    inbox: Arc<Inbox>,
}

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Starts a coroutine on the spawner's worker. If that has ended, the result is
    /// [`JoinError::Cancelled`].
    #[track_caller]
    pub fn spawn<T, F>(&self, closure: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Spawn::new().spawn_by(self, closure)
    }
}

/// A handle that starts coroutines on this worker from any thread.
///
/// ```
/// let sum = ringloop_coro::start(1, || {
///     let spawner = ringloop_coro::spawner();
///     let thread = std::thread::spawn(move || spawner.spawn(|| 40).join().unwrap() + 2);
///     ringloop_coro::block_on(ringloop::spawn_blocking(|| thread.join().unwrap())).unwrap()
/// })?;
/// assert_eq!(sum, 42);
/// # Ok::<(), ringloop::Error>(())
/// ```
///
/// # Panics
/// Outside of a runtime.
#[track_caller]
pub fn spawner() -> Spawner {
    Spawner { inbox: Arc::clone(scheduler().inbox()) }
}

/// The name of the running coroutine.
pub fn name() -> Option<String> {
    with_current(|frame| Some(frame?.header().options.name.as_deref()?.to_owned()))
}
