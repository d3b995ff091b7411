//! The engine behind its cell: opened for one operation at a time, never across a call into Python.
//!
//! A child process shares the parent's epoll set and ring descriptors, and does not have the ring's
//! memory at all. So an engine knows in which process it was opened, counted by [`after_fork`]; in any
//! other it refuses to work, and is abandoned instead of being closed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use ringloop::Options;
use ringloop::driver::{Choice, Driver, Event, Key, Kind};
use ringloop::executor::{Engine, Unpark};

use crate::error;
use crate::ffi::Confined;

/// How many forks lie between this process and the one that loaded the module.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Runs in the child after a fork: engines opened before belong to the parent.
#[pyfunction]
pub fn after_fork() {
    FORKS.fetch_add(1, Relaxed);
}

/// A loop's engine; empty before `Loop.__init__` and after `close`.
pub struct EngineCell {
    cell: Confined<Option<Engine>>,
    /// The driver was used since the kernel was last asked.
    submitted: AtomicBool,
    /// `FORKS` when it was opened.
    forks: AtomicU64,
    /// The thread that it is bound to. Python's thread numbers are used again; these are not.
    thread_id: Confined<Option<ThreadId>>,
}

impl EngineCell {
    /// Make an empty one.
    pub const fn new() -> Self {
        Self {
            cell: Confined::new(None),
            submitted: AtomicBool::new(false),
            forks: AtomicU64::new(0),
            thread_id: Confined::new(None),
        }
    }

    /// Set the engine up with the driver called `driver` (the environment's choice when None).
    /// Returns how other threads wake it, its driver's name, and why it is that one.
    pub fn open(&self, driver: Option<&str>) -> PyResult<(Unpark, String, String)> {
        let choice = match driver {
            Some(word) => word.parse().map_err(error::from_engine)?,
            None => Choice::from_env().map_err(error::from_engine)?,
        };
        let engine = Engine::new(Options {
            driver: choice,
            ..Options::default()
        })
        .map_err(error::from_engine)?;
        let facts = (
            engine.unpark(),
            engine.kind().to_string(),
            engine.reason().to_owned(),
        );
        self.forks.store(FORKS.load(Relaxed), Relaxed);
        let old = self.cell.with(|cell| cell.replace(engine))?;
        drop(old);
        Ok(facts)
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
        let park = |cell: &mut Option<Engine>| cell.as_mut().map(|engine| engine.park(timeout));
        self.cell
            .with_detached(py, park)?
            .ok_or_else(error::closed)?
            .map_err(|error| error::from_io(&error))
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
        self.forks.load(Relaxed) != FORKS.load(Relaxed)
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
        self.cell
            .with(|cell| cell.as_mut().map(body))?
            .ok_or_else(error::closed)
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
    PyRuntimeError::new_err(
        "this loop was made before a fork and belongs to the parent process; make a new one",
    )
}
