//! The engine behind its cell: opened for one operation at a time, never across a call into Python.
//!
//! A child process shares the parent's epoll set and ring descriptors, and does not have the ring's
//! memory at all. So an engine knows in which process it was opened, counted by the
//! engine ([`fork::count`]); in any
//! other it refuses to work, and is abandoned instead of being closed.
//!
//! While the loop waits the engine is its thread's. Another thread that needs it (`remove_reader`, say, which asyncio
//! takes from anywhere) is a visitor: it ends the wait, and the loop goes on once the visitors have left. No callback
//! runs in between, so a visitor never waits for one.

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

/// How many forks lie between this process and the one in which it was first asked.
pub fn forks() -> u32 {
    fork::count()
}

/// A loop's engine; empty before `Loop.__init__` and after `close`.
pub struct EngineCell {
    cell: Confined<Option<Engine>>,
    /// The driver was used since the kernel was last asked.
    submitted: AtomicBool,
    /// [`forks`] when it was opened.
    forks: AtomicU32,
    /// The thread that it is bound to. Python's thread numbers are used again; these are not.
    thread_id: Confined<Option<ThreadId>>,
    /// Other threads that wait for the engine, or use it.
    visitors: AtomicU32,
    /// How they end the loop's wait.
    unpark: Mutex<Option<Unpark>>,
}

/// Leaves when it is dropped.
struct Visit<'a>(&'a AtomicU32);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

/// What an engine that was opened says of itself.
pub struct Opened {
    /// How other threads wake it.
    pub unpark: Unpark,
    /// Its driver's name.
    pub driver: String,
    /// Why it is that one.
    pub reason: String,
    /// The ring was refused, and nobody has asked for epoll.
    pub fell_back: bool,
}

impl EngineCell {
    /// Make an empty one.
    pub const fn new() -> Self {
        Self {
            cell: Confined::new(None),
            submitted: AtomicBool::new(false),
            forks: AtomicU32::new(0),
            thread_id: Confined::new(None),
            visitors: AtomicU32::new(0),
            unpark: Mutex::new(None),
        }
    }

    /// Set the engine up with the driver called `driver` (the environment's choice when None).
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

    /// Make the calling thread the engine's own.
    pub fn bind(&self) -> PyResult<()> {
        self.with(Engine::bind)?
            .map_err(|error| error::from_io(&error))?;
        Ok(self
            .thread_id
            .with(|id| *id = Some(thread::current().id()))?)
    }

    /// Say whether the engine is a ring that another thread has used: the kernel ties a ring to the
    /// first thread that submits to it.
    pub fn is_tied_to_another_thread(&self) -> PyResult<bool> {
        let here = thread::current().id();
        let elsewhere = self.thread_id.with(|id| id.is_some_and(|id| id != here))?;
        Ok(elsewhere && self.kind()? == Kind::Uring)
    }

    /// Look for completions without waiting.
    pub fn look(&self) -> PyResult<()> {
        self.submitted.store(false, Relaxed);
        let looked = self.with(|engine| {
            if engine.has_work() {
                engine.park(Some(Duration::ZERO))
            } else {
                Ok(())
            }
        })?;
        looked.map_err(|error| error::from_io(&error))
    }

    /// Wait with the interpreter lock released.
    pub fn wait(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<()> {
        self.check_process()?;
        self.submitted.store(false, Relaxed);
        let park = |cell: &mut Option<Engine>| {
            let has_visitors = self.visitors.load(SeqCst) > 0;
            let timeout = if has_visitors {
                Some(Duration::ZERO)
            } else {
                timeout
            };
            cell.as_mut().map(|engine| engine.park(timeout))
        };
        let waited = self.cell.with_detached(py, park)?;
        if self.visitors.load(Relaxed) > 0 {
            self.let_visitors_in(py);
        }
        waited
            .ok_or_else(error::closed)?
            .map_err(|error| error::from_io(&error))
    }

    /// Wait until they have left, or for as long as none of them should take.
    #[cold]
    fn let_visitors_in(&self, py: Python<'_>) {
        py.detach(|| {
            let end = Instant::now() + limits::VISITORS_WAIT_MAX;
            while self.visitors.load(Acquire) > 0 && Instant::now() < end {
                thread::sleep(limits::VISIT_PAUSE / 4);
            }
        });
    }

    /// Have the loop come back from its wait, and stay until `body` is done.
    #[cold]
    fn visit<R, F: FnOnce(&mut Option<Engine>) -> R>(&self, mut body: F) -> Result<R, Busy> {
        // Before the look at the cell, as the loop looks here after it has given the cell away.
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

    /// Use the driver.
    #[inline]
    pub fn driver<R>(&self, body: impl FnOnce(&mut Driver) -> R) -> PyResult<R> {
        self.submitted.store(true, Relaxed);
        self.with(|engine| body(engine.driver_mut()))
    }

    /// As [`EngineCell::driver`], unless the loop waits: for finalisers, which run at any moment.
    pub fn driver_if_free<R>(&self, body: impl FnOnce(&mut Driver) -> R) -> PyResult<R> {
        if self.cell.is_lent() {
            return Err(Busy.into());
        }
        self.driver(body)
    }

    /// Say whether an operation is over, also where its completion has not been handed out.
    pub fn has_ended(&self, key: Key) -> PyResult<bool> {
        self.with(|engine| engine.driver_mut().has_ended(key))
    }

    /// Which driver is in use.
    pub fn kind(&self) -> PyResult<Kind> {
        self.with(|engine| engine.kind())
    }

    /// Say whether the kernel should be asked before more callbacks run: operations were submitted
    /// since it last was, or completions are known to wait.
    #[inline]
    pub fn owes_io(&self) -> PyResult<bool> {
        if self.submitted.load(Relaxed) {
            return Ok(true);
        }
        // Only the ring can tell without a system call.
        self.with(|engine| engine.kind() == Kind::Uring && engine.has_work())
    }

    /// Drop the engine; after a fork, abandon it to the parent.
    pub fn close(&self) -> PyResult<()> {
        if self.is_of_another_process() {
            return Ok(());
        }
        let engine = self.cell.with(Option::take)?;
        drop(engine);
        Ok(())
    }

    /// Say whether the engine was opened before a fork.
    pub fn is_of_another_process(&self) -> bool {
        self.forks.load(Relaxed) != forks()
    }

    /// Fail after a fork.
    #[inline]
    pub fn check_process(&self) -> PyResult<()> {
        if self.is_of_another_process() {
            Err(forked())
        } else {
            Ok(())
        }
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
