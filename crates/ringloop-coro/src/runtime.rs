//! A runtime of coroutines: `start`, and how coroutines are spawned.
//!
//! Called by: programs. Never does: run a coroutine by itself; each worker's host does.

use crate::deadlock::{self, DeadlockDetector, Ended};
use crate::inbox::Inbox;
use crate::join::{JoinError, JoinHandle};
use crate::limits;
use crate::scheduler::{self, Scheduler};
use crate::switch::with_current;
use crate::task::{Joinable, Runnable, SpawnOptions, Task};
use crate::workers;
use ringloop::Error;
use ringloop::driver::Choice;
use ringloop::executor::Local;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::panic::{Location, resume_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Run `main` as the first coroutine of a runtime with so many workers (threads with a loop each, the calling one
/// among them), and return its result. The coroutines that are left when it ends are cancelled.
///
/// Errors: a driver, ring or thread that the system refuses; on a thread where a runtime had to leave a coroutine in a
/// destructor that waited for what never came: use another thread.
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
/// # Panics
/// With the panic of `main`; inside of a coroutine. In a debug build with the list of the coroutines where all of them are parked and nothing
/// is left that could wake one, as far as the process has no other threads.
#[track_caller]
pub fn start<T: 'static>(workers: usize, main: impl FnOnce() -> T + 'static) -> Result<T, Error> {
    Builder::new().workers(workers).start(main)
}

/// How a runtime of coroutines is set up.
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
    /// One worker, the driver that `RINGLOOP_DRIVER` names or the best there is, stacks of
    /// [`limits::STACK_BYTES`].
    pub fn new() -> Self {
        Self::default()
    }

    /// How many threads run coroutines, the calling one among them.
    pub fn workers(mut self, count: usize) -> Self {
        self.runtime = self.runtime.workers(count);
        self
    }

    /// What the threads are named before their number.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.runtime = self.runtime.thread_name(name);
        self
    }

    /// Which driver to use.
    pub fn driver(mut self, driver: Choice) -> Self {
        self.runtime = self.runtime.driver(driver);
        self
    }

    /// Usable bytes of each coroutine's stack, from [`limits::STACK_BYTES_MIN`] to [`limits::STACK_BYTES_MAX`]. A
    /// page costs memory once it was touched.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// Run `main` as the first coroutine; see [`start`].
    ///
    /// # Panics
    /// With the panic of `main`; inside of a coroutine.
    #[track_caller]
    pub fn start<T: 'static>(self, main: impl FnOnce() -> T + 'static) -> Result<T, Error> {
        assert!(
            with_current(|frame| frame.is_none()),
            "a runtime was started inside of a coroutine, whose thread it would stop: spawn in the runtime that there is, \
             or start another one on a thread of its own"
        );
        scheduler::usable().map_err(io::Error::other)?;
        let place = Location::caller();
        let runtime = self.runtime.build()?;
        let stack_bytes = self.stack_bytes;
        let workers = runtime.workers().count();
        let census = deadlock::SOUGHT.then(|| DeadlockDetector::new(workers));
        let mut places = workers::places(workers, census).into_iter();
        let first = places.next();
        let team = first.as_ref().map(|place| Arc::clone(&place.team));
        if let Some(place) = first {
            drop(runtime.spawn(Scheduler::open(place, stack_bytes)));
        }
        for place in places {
            let worker = place.number;
            drop(
                runtime
                    .workers()
                    .spawn_on(worker, move || Scheduler::open(place, stack_bytes))?,
            );
        }
        let ended = runtime.block_on(async move {
            let traits = SpawnOptions {
                name: Some("main".into()),
                stack_bytes: None,
            };
            let mut joining = pin!(Spawn { traits }.here(place, main).into_future());
            let census = team.as_ref().and_then(|team| team.census.as_ref());
            poll_fn(|cx| {
                if let Poll::Ready(joined) = joining.as_mut().poll(cx) {
                    return Poll::Ready(Ended::Joined(joined));
                }
                match census {
                    Some(census) => census.poll(cx).map(Ended::Deadlock),
                    None => Poll::Pending,
                }
            })
            .await
        })?;
        runtime.shut_down()?;
        match ended {
            Ended::Joined(Ok(value)) => Ok(value),
            Ended::Joined(Err(JoinError::Panicked(payload))) => resume_unwind(payload),
            Ended::Joined(Err(JoinError::Cancelled)) => Err(Error::Closed),
            Ended::Joined(Err(JoinError::Refused(error))) => Err(error.into()),
            Ended::Deadlock(verdict) => panic!("{verdict}"),
        }
    }
}

/// The host of the calling thread; made where a loop runs without one.
fn host() -> Rc<Scheduler> {
    Scheduler::current().unwrap_or_else(|| {
        let Some(local) = Local::try_current() else {
            panic!(
                "a coroutine was spawned outside of a runtime: use ringloop_coro::start, or spawn inside of a \
                 ringloop::Runtime"
            );
        };
        if let Err(reason) = scheduler::usable() {
            panic!("{reason}");
        }
        for place in workers::places(1, None) {
            drop(local.spawn(Scheduler::open(place, limits::STACK_BYTES)));
        }
        host()
    })
}

/// Start a coroutine on any worker of the runtime that the calling code runs in.
///
/// Shape: the closure may begin on another thread, so it is `Send`, and so is its result; once it has begun it never
/// leaves its thread, and what it makes there need not be `Send`.
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

/// Start a coroutine on the calling thread, where it stays: neither its closure nor its result need be `Send`.
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

/// How one coroutine is started: its name, the size of its stack.
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
    traits: SpawnOptions,
}

impl Spawn {
    /// No name, and the runtime's own size of stack.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the coroutine is called where something is said of it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.traits.name = Some(name.into().into_boxed_str());
        self
    }

    /// Usable bytes of its stack; see [`Builder::stack_size`].
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.traits.stack_bytes = Some(bytes);
        self
    }

    /// See [`spawn`].
    ///
    /// # Panics
    /// Outside of a runtime.
    #[track_caller]
    pub fn spawn<T, F>(self, closure: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let task = Task::new(self.traits, Location::caller(), closure);
        host().offer(Arc::clone(&task) as Arc<dyn Runnable>);
        JoinHandle::new(task as Arc<dyn Joinable<T>>)
    }

    /// See [`spawn_local`].
    ///
    /// # Panics
    /// Outside of a runtime.
    #[track_caller]
    pub fn spawn_local<T, F>(self, closure: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        self.here(Location::caller(), closure)
    }

    fn here<T: 'static>(
        self,
        place: &'static Location<'static>,
        closure: impl FnOnce() -> T + 'static,
    ) -> JoinHandle<T> {
        let task = Task::new(self.traits, place, closure);
        host().adopt(Arc::clone(&task) as Arc<dyn Runnable>);
        JoinHandle::new(task as Arc<dyn Joinable<T>>)
    }

    /// See [`Spawner::spawn`].
    #[track_caller]
    pub fn spawn_by<T, F>(self, spawner: &Spawner, closure: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let task = Task::new(self.traits, Location::caller(), closure);
        if let Err(task) = spawner.door.send(Arc::clone(&task) as Arc<dyn Runnable>) {
            task.refuse(JoinError::Cancelled);
            task.finish();
        }
        JoinHandle::new(task as Arc<dyn Joinable<T>>)
    }
}

/// Starts coroutines of a runtime from any thread.
#[derive(Clone)]
pub struct Spawner {
    door: Arc<Inbox>,
}

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Start a coroutine on the worker that made the spawner; once that has ended, the result is
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

/// What starts coroutines on this worker from any thread.
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
    Spawner {
        door: Arc::clone(host().door()),
    }
}

/// The name of the coroutine that the calling code runs in.
pub fn name() -> Option<String> {
    with_current(|frame| Some(frame?.head().traits.name.as_deref()?.to_owned()))
}
