//! The class `ringloop._native.LoopCore`: a loop's state, and rarely used methods.
//!
//! State is in [`Confined`] cells and atomics; no cell is open across a call into Python, so
//! callbacks may re-enter at any point.

use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use ringloop::Error;
use ringloop::embed::Token;
use ringloop::embed::sys::datagram::{Batch, Outgoing};
use ringloop::embed::{Inbox, Unpark};

use super::callback::{AsHandle, Contexts, Parts};
use super::debug;
use super::engine::EngineCell;
use super::give_way::GaveWay;
use super::handle::TimerHandle;
use super::handlers::{Handler, Handlers};
use super::outward;
use super::owed::Owed;
use super::ready::{Entry, Ready};
use super::timers::Timers;
use super::watchers::{self, Watchers};
use crate::error;
use crate::ffi::{
    self, Args, Confined, Fallible, Obj, Payload, Raise as _, StepTypes, Visited, Visitor,
};

/// The native part of an event loop.
#[pyclass(subclass, frozen, module = "ringloop._native")]
#[derive(Default)]
pub struct LoopCore {
    pub(crate) engine: EngineCell,
    pub(crate) handlers: Confined<Handlers>,
    pub(super) ready: Confined<Ready>,
    pub(super) timers: Confined<Timers>,
    pub(super) contexts: Contexts,
    /// Transports written to in this turn.
    pub(super) unflushed: Confined<Vec<Handler>>,
    pub(super) owed: Confined<Vec<Owed>>,
    /// Whether that list is not empty.
    pub(super) owes: AtomicBool,
    /// Descriptors that belong to transports.
    pub(super) transport_fds: Confined<HashMap<RawFd, Token>>,
    pub(super) watchers: Confined<Watchers>,
    /// Receive buffers of datagrams; created by the first endpoint that receives.
    pub(crate) datagrams: Confined<Option<Batch>>,
    /// Headers of outgoing datagrams.
    pub(crate) outgoing: Confined<Outgoing>,
    /// When the interpreter was last released to other threads.
    pub(super) gave_way: GaveWay,
    /// Number of turns started.
    pub(super) turns: AtomicU64,
    /// Receive buffer of our own protocols, which copy from it.
    pub(crate) scratch: Confined<Vec<u8>>,
    /// Messages from other threads; `None` before `__init__` and after `close`.
    inbox: RwLock<Option<Inbox<Obj>>>,
    /// Capacity of the inbox.
    inbox_capacity: AtomicUsize,
    /// Ends the passes of a turn early; only a hint, the inbox decides.
    message_hint: AtomicBool,
    /// Memory of the inbox's last batch, to be reused.
    pub(super) inbox_batch: Confined<VecDeque<Obj>>,
    /// The driver's name, and why it was chosen.
    driver: OnceLock<(String, String)>,
    task_factory: Confined<Option<Obj>>,
    pub(super) stopping: AtomicBool,
    closed: AtomicBool,
    debug: AtomicBool,
    /// The object is exactly a `ringloop.Loop`: `call_soon` is not overridden.
    exact: AtomicBool,
    /// Timers use an overridden `time()`.
    pub(super) foreign_clock: AtomicBool,
    has_task_factory: AtomicBool,
    /// Writes are not deferred to the end of the turn.
    writes_eagerly: AtomicBool,
    /// `threading.get_ident()` of the running thread; zero when the loop does not run.
    thread_id: Arc<AtomicU64>,
    pub(super) steps: &'static StepTypes,
}

/// How a handle is added to the inbox.
type Add = fn(&Inbox<Obj>, Obj) -> Result<(), (Obj, Error)>;

impl LoopCore {
    #[inline]
    pub fn debug(&self) -> bool {
        self.debug.load(Relaxed)
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    #[inline]
    pub fn check_open(&self) -> PyResult<()> {
        if self.is_closed() { Err(self.why_closed()) } else { Ok(()) }
    }

    #[cold]
    fn why_closed(&self) -> PyErr {
        if self.driver.get().is_none() {
            return PyRuntimeError::raise("Loop.__init__() was not called, or has failed");
        }
        error::closed()
    }

    #[inline]
    pub fn is_running(&self) -> bool {
        self.thread_id.load(Relaxed) != 0
    }

    /// The number of the current turn; zero while the loop does not run.
    #[inline]
    pub fn turn_number(&self) -> u64 {
        if self.is_running() { self.turns.load(Relaxed) } else { 0 }
    }

    #[inline]
    pub fn is_running_here(&self) -> bool {
        self.thread_id.load(Relaxed) == ffi::thread_id()
    }

    /// The thread that runs the loop, readable without the loop; zero for none.
    pub fn running_thread(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.thread_id)
    }

    /// Whether a task's step needs no handle.
    #[inline]
    pub(super) fn may_skip_handles(&self) -> bool {
        self.exact.load(Relaxed) && !self.debug()
    }

    /// Whether every write is sent at once.
    pub fn writes_eagerly(&self) -> bool {
        self.writes_eagerly.load(Relaxed)
    }

    #[inline]
    pub(super) fn has_task_factory(&self) -> bool {
        self.has_task_factory.load(Relaxed)
    }

    /// Queues a handle from any thread.
    pub(super) fn send(&self, handle: Obj) -> PyResult<()> {
        self.send_by(handle, Inbox::send)
    }

    /// As [`LoopCore::send`], beyond the inbox's capacity: for replies to the loop's requests, each
    /// of which has a waiter.
    pub(super) fn send_answer(&self, handle: Obj) -> PyResult<()> {
        self.send_by(handle, Inbox::push)
    }

    fn send_by(&self, handle: Obj, add: Add) -> PyResult<()> {
        // Keeps the order of all calls on the loop's own thread, and of any thread while the loop
        // does not run.
        if self.is_running_here() || !self.is_running() {
            self.ready.with(|ready| ready.try_push(Entry::Handle(handle)))??;
            if cfg!(Py_GIL_DISABLED) {
                self.wake_if_running_elsewhere();
            }
            return Ok(());
        }
        // The parent shares the descriptor that wakes the loop.
        self.engine.check_process()?;
        self.message_hint.store(true, Relaxed);
        let sent = match &*self.inbox() {
            Some(inbox) => add(inbox, handle),
            None => Err((handle, Error::Closed)),
        };
        sent.map_err(|(_handle, error)| match error {
            // The only such error of an inbox.
            Error::Io(_) => PyMemoryError::raise_bare(),
            error => error::from_engine(error),
        })
    }

    /// Without the interpreter lock, another thread may have started to run the loop, and to sleep,
    /// after it was seen not to run. It marks the loop as running before it first opens the ready
    /// ring: if it missed the new entry there, it is seen to run here.
    fn wake_if_running_elsewhere(&self) {
        if self.is_running()
            && !self.is_running_here()
            && let Some(inbox) = &*self.inbox()
        {
            inbox.wake();
        }
    }

    /// Whether other threads may have sent something since the last check; may lag.
    #[inline]
    pub(super) fn may_have_messages(&self) -> bool {
        self.message_hint.load(Relaxed)
    }

    /// Whether other threads have sent anything.
    pub(super) fn has_messages(&self) -> bool {
        self.message_hint.store(false, Relaxed);
        self.inbox().as_ref().is_some_and(|inbox| !inbox.is_empty())
    }

    /// Moves the messages of other threads into `batch`, which is empty.
    pub(super) fn take_messages(&self, batch: &mut VecDeque<Obj>) {
        if let Some(inbox) = &*self.inbox() {
            inbox.take(batch);
        }
    }

    /// While it is held, there are no calls into Python and no drops of objects.
    fn inbox(&self) -> RwLockReadGuard<'_, Option<Inbox<Obj>>> {
        self.inbox.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds the loop to the calling thread.
    pub(super) fn bind(&self) -> PyResult<()> {
        if self.engine.is_tied_to_another_thread()? {
            self.replace_engine()?;
        }
        self.engine.bind()
    }

    /// Continues with a ring of this thread; only watchers can be moved.
    fn replace_engine(&self) -> PyResult<()> {
        let watched = self.watchers.with(|watchers| watchers.len())?;
        if self.handlers.with(|handlers| handlers.len())? > watched {
            return Err(PyRuntimeError::raise(
                "this loop has connections on the io_uring of another thread: \
                 run it there, or use driver=\"epoll\"",
            ));
        }
        let unpark = self.engine.open(Some("uring"))?.unpark;
        if let Some(old) = self.replace_inbox(Some(self.new_inbox(unpark))) {
            let mut handles = old.close();
            self.ready.with(|ready| ready.append(&mut handles))?;
            if !handles.is_empty() {
                self.inbox_batch.with(|batch| batch.append(&mut handles))?;
            }
        }
        watchers::resubmit(self)
    }

    fn new_inbox(&self, unpark: Unpark) -> Inbox<Obj> {
        Inbox::new(unpark, self.inbox_capacity.load(Relaxed))
    }

    /// Replaces the inbox; closes and returns the old one with its remaining messages.
    fn replace_inbox(&self, inbox: Option<Inbox<Obj>>) -> Option<Inbox<Obj>> {
        let mut place = self.inbox.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut place, inbox)
    }

    /// Collects the contents of a handle: `args[skip - 1]` and its arguments.
    #[inline]
    pub(super) fn parts<'a, 'py>(
        &self,
        loop_: &Bound<'py, LoopCore>,
        callback: Borrowed<'_, '_, PyAny>,
        args: Args<'a, 'py>,
        skip: usize,
        context: Option<Obj>,
    ) -> PyResult<Parts<'a, 'py>> {
        let callable = Obj::from_borrowed(callback);
        let parts = Parts::new(callable, args, skip, context, loop_.clone().into())?;
        if self.debug() {
            return Ok(parts.scheduled_by(debug::extract_stack(loop_.py())?));
        }
        Ok(parts)
    }

    /// Counts a cancelled timer in the heap, and sweeps if there are many.
    pub(super) fn timer_cancelled(&self, py: Python<'_>) -> PyResult<()> {
        let swept = self.timers.with(|timers| {
            if !timers.count_cancelled() {
                return vec![];
            }
            timers.sweep(|handle| {
                TimerHandle::native()
                    .get(handle.bind(py))
                    .is_none_or(|this| this.state().is_cancelled())
            })
        })?;
        for handle in &swept {
            if let Some(this) = TimerHandle::native().get(handle.bind(py)) {
                this.unschedule();
            }
        }
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.ready.visit(|ready| ready.visit(visitor))?;
        self.timers.visit(|timers| timers.visit(visitor))?;
        self.handlers.visit(|handlers| handlers.visit(visitor))?;
        self.watchers.visit(|watchers| watchers.visit(visitor))?;
        self.owed.visit(|list| list.iter().try_for_each(|owed| owed.visit(visitor)))?;
        self.task_factory
            .visit(|factory| factory.iter().try_for_each(|object| visitor.visit(object)))
    }

    /// Drops every reference, each outside its cell.
    fn clear(&self) -> PyResult<()> {
        drop(self.ready.with(Ready::take)?);
        drop(self.timers.with(Timers::take)?);
        self.contexts.clear()?;
        drop(self.handlers.with(Handlers::take)?);
        drop(self.unflushed.with(std::mem::take)?);
        drop(self.owed.with(std::mem::take)?);
        drop(self.watchers.with(std::mem::take)?);
        drop(self.datagrams.with(Option::take)?);
        drop(self.scratch.with(std::mem::take)?);
        drop(self.task_factory.with(Option::take)?);
        drop(self.replace_inbox(None));
        Ok(())
    }
}

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
        Ok(Self {
            // Until it is opened, so that `__del__` does not warn.
            closed: AtomicBool::new(true),
            steps: StepTypes::shared(py)?,
            ..Self::default()
        })
    }

    /// Set the engine up; `exact` says that the object is a `ringloop.Loop` and no subclass,
    /// `inbox_messages` how many messages of other threads may wait, `eager` that nothing written may. Says whether the
    /// ring was refused to a loop that would have had it.
    #[pyo3(signature = (driver, exact, inbox_messages, eager))]
    fn _open(
        &self,
        driver: Option<&str>,
        exact: bool,
        inbox_messages: Option<isize>,
        eager: bool,
    ) -> PyResult<Fallible<bool>> {
        if self.driver.get().is_some() {
            return Err(PyRuntimeError::raise("Loop.__init__() was called twice"));
        }
        let capacity = inbox_capacity(inbox_messages)?;
        let opened = self.engine.open(driver)?;
        self.inbox_capacity.store(capacity, Relaxed);
        drop(self.replace_inbox(Some(self.new_inbox(opened.unpark))));
        // Found empty above.
        let _ = self.driver.set((opened.driver, opened.reason));
        self.exact.store(exact, Relaxed);
        // Without audit events, deferred writes would not be flushed in time.
        self.writes_eagerly.store(eager || !outward::watch(), Relaxed);
        self.closed.store(false, Relaxed);
        Ok(Fallible(opened.fell_back))
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

    /// Tell the kernel what the last callbacks left to tell, without waiting.
    fn _settle(&self) -> PyResult<()> {
        if self.engine.is_of_another_process() {
            return Ok(());
        }
        self.engine.look()
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
        self.send(handle.into())
    }

    /// The name of the driver in use, "uring" or "epoll".
    #[getter]
    fn driver(&self) -> Fallible<Option<&str>> {
        Fallible(self.driver.get().map(|(name, _)| name.as_str()))
    }

    /// Why this driver is in use, in one sentence.
    #[getter]
    fn driver_reason(&self) -> Fallible<Option<&str>> {
        Fallible(self.driver.get().map(|(_, reason)| reason.as_str()))
    }

    #[getter]
    fn _debug(&self) -> bool {
        self.debug()
    }

    #[setter(_debug)]
    fn set_debug(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        ffi::arm();
        self.debug.store(value.is_truthy()?, Relaxed);
        Ok(())
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
        if self.thread_id.load(Relaxed) != ffi::thread_id() {
            return Ok(false);
        }
        self.stopping.store(false, Relaxed);
        self.thread_id.store(0, Relaxed);
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
        Fallible(Some(self.thread_id.load(Relaxed)).filter(|&ident| ident != 0))
    }

    /// Also what makes sure that only one thread runs the loop: two may find it not running at once.
    #[setter(_thread_id)]
    fn set_thread_id(&self, ident: Option<u64>) -> PyResult<()> {
        let Some(ident) = ident else {
            self.thread_id.store(0, Relaxed);
            return Ok(());
        };
        match self.thread_id.compare_exchange(0, ident, Relaxed, Relaxed) {
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
