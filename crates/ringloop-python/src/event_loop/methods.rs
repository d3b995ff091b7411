//! The Python methods of [`LoopCore`] that are not called once per callback; `schedule` has those.
//!
//! Called by: `ringloop.Loop`, the class on top.

use ringloop::embed::Driver;
use ringloop::embed::sys::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use super::core::{Chosen, LoopCore};
use super::engine::Opened;
use super::handlers::Handlers;
use super::inbox;
use super::observe::{Beat, Numbers};
use super::outward;
use super::pulse::SlowHook;
use super::ready::Entry;
use crate::ffi::{self, Fallible, Obj, Raise as _, Visited, Visitor};

/// The inbox capacity that the application requested.
fn inbox_capacity(messages: Option<isize>) -> PyResult<usize> {
    match messages.map(usize::try_from) {
        None => Ok(ringloop::embed::limits::INBOX_MESSAGES),
        Some(Ok(messages @ 1..)) => Ok(messages),
        Some(_) => Err(PyValueError::raise("inbox_messages must be at least 1")),
    }
}

/// Adapts `PyO3`'s visitor to ours.
struct Adapter<'a, 'b> {
    visit: &'a PyVisit<'b>,
    stopped: Option<PyTraverseError>,
}

impl Visitor for Adapter<'_, '_> {
    fn visit(&mut self, object: &Obj) -> Visited {
        match self.visit.call(object.as_py()) {
            Ok(()) => Visited::Continue(()),
            Err(error) => {
                self.stopped = Some(error);
                Visited::Break(1)
            }
        }
    }
}

#[pymethods]
impl LoopCore {
    /// Ignores the arguments, as `object.__new__` does for classes with an `__init__`.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        ffi::arm();
        Self::unopened(py)
    }

    /// Set the engine up; `exact` says that the object is a `ringloop.Loop` and no subclass,
    /// `inbox_messages` how many messages of other threads may wait, `eager` that nothing written may,
    /// `busy_polling_ns` how long it looks for completions before it sleeps. Says whether the ring was
    /// refused to a loop that would have had it.
    #[pyo3(signature = (driver, exact, inbox_messages, eager, busy_polling_ns))]
    fn _open(
        &self,
        driver: Option<&str>,
        exact: bool,
        inbox_messages: Option<isize>,
        eager: bool,
        busy_polling_ns: u64,
    ) -> PyResult<Fallible<bool>> {
        if self.driver.get().is_some() {
            return Err(PyRuntimeError::raise("Loop.__init__() was called twice"));
        }
        let capacity = inbox_capacity(inbox_messages)?;
        self.engine.set_busy_polling(busy_polling_ns);
        let opened = self.engine.open(driver)?;
        self.inbox.open(capacity)?;
        // Found empty above.
        let Opened { driver: name, reason, features, fell_back, .. } = opened;
        let _ = self.driver.set(Chosen { name, reason, features, fell_back });
        self.exact.store(exact, Relaxed);
        // Without audit events, deferred writes would not be flushed in time.
        self.writes_eagerly.store(eager || !outward::watch(), Relaxed);
        self.closed.store(false, Relaxed);
        Ok(Fallible(fell_back))
    }

    /// Run turns until `stop` or an exception that leaves the loop.
    fn _run(slf: &Bound<'_, Self>) -> PyResult<()> {
        ffi::arm();
        slf.get().run(slf)
    }

    /// Find out anew which clock the timers go by.
    fn _look_for_clock(slf: &Bound<'_, Self>) -> PyResult<()> {
        ffi::arm();
        slf.get().look_for_clock(slf)
    }

    /// Say whether the loop was made before a fork, and this is the child.
    fn _is_inherited(&self) -> bool {
        self.engine.is_of_another_process()
    }

    /// Tell the kernel what the last callbacks left to tell, without waiting.
    fn _settle(&self) -> PyResult<()> {
        if self.engine.is_of_another_process() {
            return Ok(());
        }
        self.engine.look()
    }

    /// On Windows the handle of the engine's completion port, with the lowest bit set: a descriptor for
    /// `_add_reader`. Elsewhere -1.
    fn _completions(&self) -> PyResult<Fallible<RawFd>> {
        self.engine.driver(|driver| driver.completions()).map(Fallible)
    }

    /// The addresses of the overlapped operations that have completed at it since the last call.
    fn _take_completions(&self) -> PyResult<Fallible<Vec<usize>>> {
        self.engine.driver(Driver::take_completions).map(Fallible)
    }

    /// The timers that the loop waits for, and cancelled ones that it has kept; the earliest first.
    fn _scheduled_timers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        ffi::arm();
        let handles = self.timers.with(|timers| timers.handles(py))??;
        ffi::new_tuple(py, handles.iter().map(|handle| handle.bind(py).clone()))
    }

    /// Drops queues, watchers and engine; the loop is marked closed first.
    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        ffi::arm();
        self.closed.store(true, Relaxed);
        // Some are resting, and are only in the list of written ones.
        let mut handlers = self.unflushed.with(std::mem::take)?;
        handlers.extend(self.handlers.with(Handlers::take)?);
        // Attached: buffers of unfinished operations may belong to Python objects.
        self.engine.close()?;
        Self::abandon(py, handlers);
        self.clear()
    }

    /// The transport that reads and writes `fd`, or None; no descriptor is as long as some integers.
    fn _transport_of(&self, fd: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        ffi::arm();
        let py = fd.py();
        let Ok(fd) = fd.extract::<RawFd>() else {
            return Ok(None);
        };
        Ok(self.transport_of(py, fd)?.map(|transport| transport.into_bound(py).unbind()))
    }

    /// Ask the running loop to end after its current pass.
    fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Queue a handle of asyncio's own, or of ours.
    fn _add_callback(&self, handle: Bound<'_, PyAny>) -> PyResult<()> {
        self.ready.with(|ready| ready.try_push(Entry::Handle(handle.into())))?
    }

    /// Queue a handle from any thread.
    fn _add_callback_signalsafe(&self, handle: Bound<'_, PyAny>) -> PyResult<()> {
        self.send(handle.into(), inbox::Bound::Capacity)
    }

    /// The name of the driver in use, "uring" or "epoll".
    #[getter]
    fn driver(&self) -> Fallible<Option<&str>> {
        Fallible(self.driver.get().map(|chosen| chosen.name.as_str()))
    }

    /// Why this driver is in use, in one sentence.
    #[getter]
    fn driver_reason(&self) -> Fallible<Option<&str>> {
        Fallible(self.driver.get().map(|chosen| chosen.reason.as_str()))
    }

    #[getter]
    fn _debug(&self) -> bool {
        self.debug()
    }

    #[setter(_debug)]
    fn set_debug(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        ffi::arm();
        self.debug.store(value.is_truthy()?, Relaxed);
        self.time_callbacks()
    }

    /// Call `call(what, seconds)` for callbacks that took at least that long; None for no hook. What
    /// is slow is a handle, the step of a task, or a transport.
    #[pyo3(signature = (seconds, call, /))]
    fn _set_slow_hook(&self, seconds: f64, call: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        ffi::arm();
        let threshold = Duration::try_from_secs_f64(seconds).map_err(|_| {
            PyValueError::raise("threshold must be a number of seconds that is not negative")
        })?;
        let threshold_ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        let hook = call.map(|call| SlowHook { call: call.into(), threshold_ns });
        let old = self.slow_hook.with(|cell| std::mem::replace(cell, hook))?;
        drop(old);
        self.time_callbacks()
    }

    /// Counters, gauges and histograms, in the order of `ringloop/metrics/_snapshot.py`.
    fn _metrics(&self) -> PyResult<Fallible<Numbers>> {
        ffi::arm();
        self.numbers().map(Fallible)
    }

    /// Whether "auto" had to do without the ring, and the names of the ring's optional features with
    /// whether the kernel has them.
    fn _driver_features(&self) -> Fallible<(bool, Vec<(&str, bool)>)> {
        let chosen = self.driver.get();
        Fallible(
            chosen
                .map_or((false, Vec::new()), |chosen| (chosen.fell_back, chosen.features.clone())),
        )
    }

    /// Phase (0 stopped, 1 running, 2 waiting); turns, sleeps and callbacks so far.
    fn _beat(&self) -> Fallible<Beat> {
        Fallible(self.beat())
    }

    #[getter]
    fn _closed(&self) -> bool {
        self.is_closed()
    }

    #[setter(_closed)]
    fn set_closed(&self, value: bool) {
        self.closed.store(value, Relaxed);
    }

    #[getter]
    fn _stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    #[setter(_stopping)]
    fn set_stopping(&self, value: bool) {
        self.stopping.store(value, Relaxed);
    }

    /// A run begins, in this thread. Fails where another thread came first.
    fn _begin_run(&self) -> PyResult<()> {
        self.set_thread_id(Some(ffi::thread_id()))
    }

    /// The run is over: `set_running_loop(None)`, `set_hooks(*hooks)`. One call, so that no interrupt comes in
    /// between: a loop that only believes it is running makes futures for another one. Says whether this thread
    /// has run the loop at all.
    #[pyo3(signature = (set_running_loop, set_hooks, hooks, /))]
    fn _end_run(
        &self,
        set_running_loop: &Bound<'_, PyAny>,
        set_hooks: &Bound<'_, PyAny>,
        hooks: &Bound<'_, PyTuple>,
    ) -> PyResult<bool> {
        if self.shared.thread_id.load(Relaxed) != ffi::thread_id() {
            return Ok(false);
        }
        self.stopping.store(false, Relaxed);
        self.shared.thread_id.store(0, Relaxed);
        let py = hooks.py();
        let none = Obj::from(py.None().into_bound(py));
        let set_running_loop = Obj::from(set_running_loop.clone());
        let forget = || ffi::call_one(py, &set_running_loop, &none);
        let set_hooks = Obj::from(set_hooks.clone());
        let [first, last] = [hooks.get_borrowed_item(0)?, hooks.get_borrowed_item(1)?]
            .map(|hook| Obj::from_borrowed(hook));
        let restore = || ffi::call(py, &set_hooks, &[&first, &last]);
        // Both may need memory (the first before CPython 3.14), and a thread with a running loop
        // set can run no other: retry once after a failure.
        let forgotten = forget().or_else(|_| forget());
        let restored = restore().or_else(|_| restore());
        forgotten.and(restored).map(|_| true)
    }

    #[getter]
    fn _thread_id(&self) -> Fallible<Option<u64>> {
        Fallible(Some(self.shared.thread_id.load(Relaxed)).filter(|&ident| ident != 0))
    }

    /// Also what makes sure that only one thread runs the loop: two may find it not running at once.
    #[setter(_thread_id)]
    fn set_thread_id(&self, ident: Option<u64>) -> PyResult<()> {
        let Some(ident) = ident else {
            self.shared.thread_id.store(0, Relaxed);
            return Ok(());
        };
        match self.shared.thread_id.compare_exchange(0, ident, Relaxed, Relaxed) {
            Err(other) if other != ident => {
                Err(PyRuntimeError::raise("This event loop is already running"))
            }
            _ => Ok(()),
        }
    }

    #[getter]
    fn _task_factory(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let factory =
            self.task_factory.with(|cell| cell.as_ref().map(|object| object.clone_ref(py)))?;
        Ok(factory.map(|object| object.into_bound(py).unbind()))
    }

    #[setter(_task_factory)]
    fn set_task_factory(&self, factory: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.has_task_factory.store(factory.is_some(), Relaxed);
        let old = self.task_factory.with(|cell| std::mem::replace(cell, factory.map(Obj::from)))?;
        drop(old);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let mut adapter = Adapter { visit: &visit, stopped: None };
        let _ = self.visit(&mut adapter);
        adapter.stopped.map_or(Ok(()), Err)
    }

    fn __clear__(&self) {
        // An open cell belongs to a thread inside, so this is not garbage.
        let _ = self.clear();
    }
}
