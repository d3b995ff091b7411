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

use std::sync::atomic::{
    AtomicBool, AtomicU32,
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
use ringloop::embed::{Engine, Unpark};

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
    cell: Confined<Option<Engine>>,
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
    /// Wakes it from other threads.
    pub unpark: Unpark,
    /// Its driver's name.
    pub driver: String,
    /// Why it was chosen.
    pub reason: String,
    /// The ring was unavailable, and epoll was not requested.
    pub fell_back: bool,
}

impl EngineCell {
    /// Opens the engine with the driver called `driver` (the environment's choice if None).
    pub fn open(&self, driver: Option<&str>) -> PyResult<Opened> {
        let choice = match driver {
            Some(word) => word.parse().map_err(|error: ringloop::Error| {
                PyValueError::raise(format!("argument 'driver': {error}"))
            })?,
            None => Choice::from_env().map_err(error::from_engine)?,
        };
        let engine = Engine::new(Options {
            driver: choice,
            ring_entries: limits::RING_ENTRIES,
            completion_entries: limits::COMPLETION_ENTRIES,
            ..Options::default()
        })
        .map_err(error::from_engine)?;
        let opened = Opened {
            unpark: engine.unpark(),
            driver: engine.kind().to_string(),
            reason: engine.reason().to_owned(),
            fell_back: choice == Choice::Auto && engine.kind() == Kind::Epoll,
        };
        self.forks.store(forks(), Relaxed);
        *self.unpark() = Some(opened.unpark.clone());
        let old = self.cell.with(|cell| cell.replace(engine))?;
        drop(old);
        Ok(opened)
    }

    /// Binds the engine to the calling thread.
    pub fn bind(&self) -> PyResult<()> {
        self.with(Engine::bind)?.map_err(|error| error::from_io(&error))?;
        Ok(self.thread_id.with(|id| *id = Some(thread::current().id()))?)
    }

    /// Whether the engine is a ring that another thread has used: the kernel ties a ring to the
    /// first thread that submits to it.
    pub fn is_tied_to_another_thread(&self) -> PyResult<bool> {
        let here = thread::current().id();
        let elsewhere = self.thread_id.with(|id| id.is_some_and(|id| id != here))?;
        Ok(elsewhere && self.kind()? == Kind::Uring)
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
        let park = |cell: &mut Option<Engine>| {
            let has_visitors = self.visitors.load(SeqCst) > 0;
            let timeout = if has_visitors { Some(Duration::ZERO) } else { timeout };
            cell.as_mut().map(|engine| engine.park(timeout))
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
    fn visit<R, F: FnOnce(&mut Option<Engine>) -> R>(&self, mut body: F) -> Result<R, Busy> {
        // Before the cell is checked, since the loop reads this after it released the cell.
        self.visitors.fetch_add(1, SeqCst);
        let _visit = Visit(&self.visitors);
        let unpark = self.unpark().clone();
        let end = Instant::now() + limits::VISIT_WAIT_MAX;
        loop {
            body = match self.cell.try_with(body) {
                Ok(done) => return Ok(done),
                Err(body) => body,
            };
            if Instant::now() > end {
                return Err(Busy);
            }
            if let Some(unpark) = &unpark {
                unpark.notify();
            }
            Python::attach(|py| py.detach(|| thread::sleep(limits::VISIT_PAUSE)));
        }
    }

    fn unpark(&self) -> MutexGuard<'_, Option<Unpark>> {
        self.unpark.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Drops the engine; after a fork, abandons it to the parent.
    pub fn close(&self) -> PyResult<()> {
        if self.is_of_another_process() {
            return Ok(());
        }
        let engine = self.cell.with(Option::take)?;
        drop(engine);
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
        let body = |cell: &mut Option<Engine>| cell.as_mut().map(body);
        let done = match self.cell.try_with(body) {
            Ok(done) => done,
            Err(body) => self.visit(body)?,
        };
        done.ok_or_else(error::closed)
    }
}

impl Drop for EngineCell {
    fn drop(&mut self) {
        if self.is_of_another_process() {
            std::mem::forget(self.cell.get_mut().take());
        }
    }
}

#[cold]
fn forked() -> PyErr {
    PyRuntimeError::raise(
        "this loop was made before a fork and belongs to the parent process; make a new one",
    )
}
