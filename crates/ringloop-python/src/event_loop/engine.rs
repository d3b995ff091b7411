//! The engine behind its cell: opened for one operation at a time, never across a call into Python.
//!
//! A child process shares the parent's epoll set and ring descriptors, and does not have the ring's
//! memory. So an engine records the process in which it was opened, as a count of forks
//! ([`fork::count`]); in any other it refuses to work, and is abandoned instead of closed.
//!
//! While the loop waits, its thread holds the engine. Another thread that needs it
//! (`remove_reader`, say, which asyncio accepts from any thread) is a visitor: it ends the wait,
//! and the loop continues once the visitors have left. No callback runs in between, so a visitor
//! never waits for one.
//!
//! The first Rust future makes the engine a [`Local`] of the thread that runs the loop
//! ([`EngineCell::hosting`]). A future that is polled uses the engine without the cell, so visitors
//! wait while one is: the loop's thread begins and ends polling with the cell open, and other threads
//! look at `polling` with the cell open.

use std::rc::Rc;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use ringloop::Choice;
use ringloop::Options;
use ringloop::embed::sys::fork;
use ringloop::embed::{Driver, Event, Key, Kind};
use ringloop::embed::{Engine, Local, Unpark};

use crate::error;
use crate::ffi::{Busy, Confined, Raise as _};
use crate::limits;

/// Number of forks between this process and the first call.
#[inline]
pub fn forks() -> u32 {
    fork::count()
}

/// A loop's engine; empty before `Loop.__init__` and after `close`.
#[derive(Default)]
pub struct EngineCell {
    cell: Confined<Place>,
    /// The engine has tasks, or had some: a turn runs them.
    hosts_futures: AtomicBool,
    /// Polls of futures on the stack of the loop's thread.
    polling: AtomicU32,
    /// The driver was used since the kernel was last polled.
    submitted: AtomicBool,
    /// [`forks`] when it was opened.
    forks: AtomicU32,
    /// The thread it is bound to. Python's thread ids are reused; these are not.
    thread_id: Confined<Option<ThreadId>>,
    /// Other threads that wait for the engine or use it.
    visitors: AtomicU32,
    /// Ends the loop's wait.
    unpark: Mutex<Option<Unpark>>,
    /// How long an engine looks for completions before it sleeps; 0 for not at all.
    busy_polling_ns: AtomicU64,
}

/// An engine, with tasks or without.
#[derive(Default)]
enum Place {
    #[default]
    Empty,
    Bare(Engine),
    Hosting(Host),
}

/// An engine with tasks, and the thread that they belong to.
struct Host {
    local: Local,
    thread_id: ThreadId,
    /// As many other references as futures that are not over.
    live: Live,
}

/// Counts a loop's futures; each holds one.
pub type Live = Rc<()>;

impl Place {
    /// Calls `body` with the engine, if there is one.
    #[inline]
    fn with<R>(&mut self, body: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        let mut borrowed;
        let engine = match self {
            Self::Bare(engine) => engine,
            Self::Hosting(host) => {
                borrowed = host.local.engine();
                &mut *borrowed
            }
            Self::Empty => return None,
        };
        Some(body(engine))
    }

    /// Lets the engine have tasks; `None` without one.
    fn host(&mut self) -> Option<&Host> {
        if let Self::Bare(_) = self
            && let Self::Bare(engine) = std::mem::take(self)
        {
            let local = Local::of_engine(engine, ringloop::embed::limits::INBOX_MESSAGES);
            *self = Self::Hosting(Host {
                local,
                thread_id: thread::current().id(),
                live: Rc::default(),
            });
        }
        match self {
            Self::Hosting(host) => Some(host),
            _ => None,
        }
    }

    /// Whether the calling thread may use the engine now: on other threads than its own not while a
    /// future is polled.
    #[inline]
    fn is_open_to_this_thread(&self, polling: &AtomicU32) -> bool {
        let Self::Hosting(host) = self else { return true };
        polling.load(Relaxed) == 0 || host.thread_id == thread::current().id()
    }
}

/// Futures may be polled until it is dropped.
struct Polling<'a>(&'a EngineCell);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.polling.fetch_sub(1, Release);
    }
}

/// Ends the visit when dropped.
struct Visit<'a>(&'a AtomicU32);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

/// Properties of an opened engine.
pub struct Opened {
    /// Its driver's name.
    pub driver: String,
    /// Why it was chosen.
    pub reason: String,
    /// The ring was unavailable, and epoll was not requested.
    pub fell_back: bool,
    /// Optional features of the ring, and whether this kernel has them.
    pub features: Vec<(&'static str, bool)>,
}

impl EngineCell {
    /// Sets the busy polling of engines opened from now on.
    pub fn set_busy_polling(&self, bound_ns: u64) {
        self.busy_polling_ns.store(bound_ns, Relaxed);
    }

    /// Opens the engine with the driver called `driver` (the environment's choice if None).
    pub fn open(&self, driver: Option<&str>) -> PyResult<Opened> {
        let choice = match driver {
            Some(word) => word.parse().map_err(|error: ringloop::Error| {
                PyValueError::raise(format!("argument 'driver': {error}"))
            })?,
            None => Choice::from_env().map_err(error::from_engine)?,
        };
        let busy_polling = Duration::from_nanos(self.busy_polling_ns.load(Relaxed));
        let mut engine = Engine::new(Options {
            driver: choice,
            ring_entries: limits::RING_ENTRIES,
            completion_entries: limits::COMPLETION_ENTRIES,
            busy_polling: (!busy_polling.is_zero()).then_some(busy_polling),
            ..Options::default()
        })
        .map_err(error::from_engine)?;
        let features = match engine.kind() {
            Kind::Uring => engine.driver_mut().features().iter().collect(),
            Kind::Epoll => Vec::new(),
        };
        let opened = Opened {
            features,
            driver: engine.kind().to_string(),
            reason: engine.reason().to_owned(),
            fell_back: choice == Choice::Auto && engine.kind() == Kind::Epoll,
        };
        self.forks.store(forks(), Relaxed);
        *self.unpark() = Some(engine.unpark());
        let old = self.cell.with(|cell| std::mem::replace(cell, Place::Bare(engine)))?;
        drop(old);
        Ok(opened)
    }

    /// Binds the engine to the calling thread.
    ///
    /// # Errors
    /// `RuntimeError` where it is bound to another, with operations that cannot be moved.
    pub fn bind(&self) -> PyResult<()> {
        self.with(Engine::bind)?.map_err(|error| match error.raw_os_error() {
            Some(_) => error::from_io(&error),
            None => PyRuntimeError::raise(error.to_string()),
        })?;
        Ok(self.thread_id.with(|id| *id = Some(thread::current().id()))?)
    }

    /// Leaves the calling thread, so that another one may run the loop.
    pub fn unbind(&self) -> PyResult<()> {
        self.with(|engine| engine.driver_mut().unbind())
    }

    /// Whether the engine is a ring that another thread has used: the kernel ties a ring to the
    /// first thread that submits to it.
    pub fn is_tied_to_another_thread(&self) -> PyResult<bool> {
        let here = thread::current().id();
        let elsewhere = self.thread_id.with(|id| id.is_some_and(|id| id != here))?;
        Ok(elsewhere && self.kind()? == Kind::Uring)
    }

    /// Whether the loop may run in this thread: its futures belong to the one that they began in.
    ///
    /// # Errors
    /// `RuntimeError` in any other.
    pub fn check_futures_thread(&self) -> PyResult<()> {
        if !self.hosts_futures() {
            return Ok(());
        }
        let here = thread::current().id();
        let elsewhere = self
            .cell
            .with(|place| matches!(place, Place::Hosting(host) if host.thread_id != here))?;
        if elsewhere { Err(other_thread()) } else { Ok(()) }
    }

    /// Whether the loop has had Rust futures.
    #[inline]
    pub fn hosts_futures(&self) -> bool {
        self.hosts_futures.load(Relaxed)
    }

    /// Whether Rust futures are ready to be polled.
    pub fn has_ready_futures(&self) -> PyResult<bool> {
        Ok(self
            .cell
            .with(|place| matches!(place, Place::Hosting(host) if host.local.has_ready()))?)
    }

    /// Calls `body`, which may poll futures and call Python, with the engine and its tasks as the
    /// thread's current loop. Call on the thread that runs the loop.
    pub fn hosting<R>(&self, body: impl FnOnce(&Local, &Live) -> R) -> PyResult<R> {
        self.check_process()?;
        let open = |place: &mut Place| {
            let host = place.host()?;
            self.polling.fetch_add(1, Relaxed);
            Some((host.local.clone(), Rc::clone(&host.live)))
        };
        // Another thread that is inside leaves soon.
        let hosted = match self.cell.try_with(open) {
            Ok(hosted) => hosted,
            Err(open) => self.visit(open)?,
        };
        let (local, live) = hosted.ok_or_else(error::closed)?;
        let _polling = Polling(self);
        self.hosts_futures.store(true, Relaxed);
        // What they submit has to reach the kernel before more callbacks run.
        self.submitted.store(true, Relaxed);
        let _entered = local.enter();
        Ok(body(&local, &live))
    }

    /// Polls for completions without waiting.
    pub fn look(&self) -> PyResult<()> {
        self.submitted.store(false, Relaxed);
        let looked =
            self.with(
                |engine| {
                    if engine.has_work() { engine.park(Some(Duration::ZERO)) } else { Ok(()) }
                },
            )?;
        looked.map_err(|error| error::from_io(&error))
    }

    /// Waits with the interpreter lock released.
    pub fn wait(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<()> {
        self.check_process()?;
        self.submitted.store(false, Relaxed);
        let park = |place: &mut Place| {
            let has_visitors = self.visitors.load(SeqCst) > 0;
            let timeout = if has_visitors { Some(Duration::ZERO) } else { timeout };
            place.with(|engine| engine.park(timeout))
        };
        let waited = self.cell.with_detached(py, park)?;
        if self.visitors.load(Relaxed) > 0 {
            self.let_visitors_in(py);
        }
        waited.ok_or_else(error::closed)?.map_err(|error| error::from_io(&error))
    }

    /// Waits until visitors have left, up to a limit.
    #[cold]
    fn let_visitors_in(&self, py: Python<'_>) {
        py.detach(|| {
            let end = Instant::now() + limits::VISITORS_WAIT_MAX;
            while self.visitors.load(Acquire) > 0 && Instant::now() < end {
                thread::sleep(limits::VISIT_PAUSE / 4);
            }
        });
    }

    /// Ends the loop's wait, and holds it off until `body` is done.
    #[cold]
    fn visit<R, F: FnOnce(&mut Place) -> R>(&self, mut body: F) -> Result<R, Busy> {
        // Before the cell is checked, since the loop reads this after it released the cell.
        self.visitors.fetch_add(1, SeqCst);
        let _visit = Visit(&self.visitors);
        let end = Instant::now() + limits::VISIT_WAIT_MAX;
        loop {
            body = match self.enter(body) {
                Ok(done) => return Ok(done),
                Err(body) => body,
            };
            if Instant::now() > end {
                return Err(Busy);
            }
            self.wake();
            Python::attach(|py| py.detach(|| thread::sleep(limits::VISIT_PAUSE)));
        }
    }

    fn unpark(&self) -> MutexGuard<'_, Option<Unpark>> {
        self.unpark.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the loop's current or next wait, from any thread.
    pub fn wake(&self) {
        if let Some(unpark) = &*self.unpark() {
            unpark.notify();
        }
    }

    /// The next completion of this turn.
    #[inline]
    pub fn next_event(&self) -> PyResult<Option<Event>> {
        self.with(Engine::next_event)
    }

    #[inline]
    pub fn driver<R>(&self, body: impl FnOnce(&mut Driver) -> R) -> PyResult<R> {
        self.submitted.store(true, Relaxed);
        self.with(|engine| body(engine.driver_mut()))
    }

    /// As [`EngineCell::driver`], unless the loop waits: for finalisers, which run at any time.
    pub fn driver_if_free<R>(&self, body: impl FnOnce(&mut Driver) -> R) -> PyResult<R> {
        if self.cell.is_lent() {
            return Err(Busy.into());
        }
        self.driver(body)
    }

    /// Whether an operation has ended, even if its completion is not dispatched yet.
    pub fn has_ended(&self, key: Key) -> PyResult<bool> {
        self.with(|engine| engine.driver_mut().has_ended(key))
    }

    pub fn kind(&self) -> PyResult<Kind> {
        self.with(|engine| engine.kind())
    }

    /// Whether to poll the kernel before more callbacks run: operations were submitted since the
    /// last time, or completions are known to be pending.
    #[inline]
    pub fn owes_io(&self) -> PyResult<bool> {
        if self.submitted.load(Relaxed) {
            return Ok(true);
        }
        // Only the ring knows without a system call.
        self.with(|engine| engine.kind() == Kind::Uring && engine.has_work())
    }

    /// Drops the engine with its tasks; after a fork, abandons it to the parent. Futures that are
    /// not over are dropped on their own thread, and on any other leaked with their engine.
    pub fn close(&self) -> PyResult<()> {
        if self.is_of_another_process() {
            return Ok(());
        }
        let here = thread::current().id();
        let ours = self
            .cell
            .with(|place| matches!(place, Place::Hosting(host) if host.thread_id == here))?;
        if ours {
            // The futures may call Python, which may use the loop.
            self.hosting(|local, _| local.shut_down())?;
        }
        self.hosts_futures.store(false, Relaxed);
        self.cell.with(std::mem::take)?.end();
        Ok(())
    }

    /// Whether the engine was opened before a fork.
    pub fn is_of_another_process(&self) -> bool {
        self.forks.load(Relaxed) != forks()
    }

    /// Fails after a fork.
    #[inline]
    pub fn check_process(&self) -> PyResult<()> {
        if self.is_of_another_process() { Err(forked()) } else { Ok(()) }
    }

    #[inline]
    fn with<R>(&self, body: impl FnOnce(&mut Engine) -> R) -> PyResult<R> {
        self.check_process()?;
        let body = |place: &mut Place| place.with(body);
        let done = match self.enter(body) {
            Ok(done) => done,
            Err(body) => self.visit(body)?,
        };
        done.ok_or_else(error::closed)
    }

    /// Opens the cell for `body`, which comes back if another thread is inside, or polls futures.
    #[inline]
    fn enter<R, F: FnOnce(&mut Place) -> R>(&self, body: F) -> Result<R, F> {
        let mut body = Some(body);
        let open = |place: &mut Place| {
            if place.is_open_to_this_thread(&self.polling) {
                body.take().map(|body| body(place))
            } else {
                None
            }
        };
        let entered = self.cell.try_with(open).ok().flatten();
        match (entered, body) {
            (Some(done), _) => Ok(done),
            (None, Some(body)) => Err(body),
            (None, None) => unreachable!("a body that was taken has returned"),
        }
    }
}

impl Place {
    /// Drops it, but never another thread's futures: these are leaked, with their engine.
    fn end(self) {
        let Self::Hosting(host) = self else { return };
        if host.thread_id == thread::current().id() {
            // They may refer to the engine that has them.
            let _entered = host.local.enter();
            host.local.shut_down();
        } else if Rc::strong_count(&host.live) > 1 {
            std::mem::forget(host);
        }
    }
}

impl Drop for EngineCell {
    fn drop(&mut self) {
        let place = std::mem::take(self.cell.get_mut());
        if self.is_of_another_process() {
            std::mem::forget(place);
        } else {
            place.end();
        }
    }
}

#[cold]
fn other_thread() -> PyErr {
    PyRuntimeError::raise(
        "this loop has run Rust futures (files of ringloop.fs are some) in another thread, which they \
         belong to; run it there, or make a new loop",
    )
}

#[cold]
fn forked() -> PyErr {
    PyRuntimeError::raise(
        "this loop was made before a fork and belongs to the parent process; make a new one",
    )
}
