//! The class `ringloop._native.LoopCore`: a loop's state, and its inbox.
//!
//! State is in [`Confined`] cells and atomics; no cell is open across a call into Python, so
//! callbacks may re-enter at any point.

use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use ringloop::Error;
use ringloop::embed::Token;
use ringloop::embed::sys::datagram::{Batch, Outgoing};
use ringloop::embed::{Inbox, Unpark};

use super::callback::Contexts;
use super::engine::EngineCell;
use super::handlers::{Handler, Handlers, Owed};
use super::ready::{Entry, Ready};
use super::timers::Timers;
use super::watched::Watchers;
use crate::error;
use crate::ffi::{self, Confined, Obj, Raise as _, StepTypes, Visited, Visitor};

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
    /// Steps of transports that lacked memory for a callback.
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
    pub(super) gave_way_ns: AtomicU64,
    /// Number of turns started.
    pub(super) turns: AtomicU64,
    /// Receive buffer of our own protocols, which copy from it.
    pub(crate) scratch: Confined<Vec<u8>>,
    /// Messages from other threads; `None` before `__init__` and after `close`.
    inbox: RwLock<Option<Inbox<Obj>>>,
    /// Capacity of the inbox.
    pub(super) inbox_capacity: AtomicUsize,
    /// Ends the passes of a turn early; only a hint, the inbox decides.
    message_hint: AtomicBool,
    /// Memory of the inbox's last batch, to be reused.
    pub(super) inbox_batch: Confined<VecDeque<Obj>>,
    /// The driver's name, and why it was chosen.
    pub(super) driver: OnceLock<(String, String)>,
    pub(super) task_factory: Confined<Option<Obj>>,
    pub(super) stopping: AtomicBool,
    pub(super) closed: AtomicBool,
    pub(super) debug: AtomicBool,
    /// The object is exactly a `ringloop.Loop`: `call_soon` is not overridden.
    pub(super) exact: AtomicBool,
    /// Timers use an overridden `time()`.
    pub(super) foreign_clock: AtomicBool,
    pub(super) has_task_factory: AtomicBool,
    /// Writes are not deferred to the end of the turn.
    pub(super) writes_eagerly: AtomicBool,
    /// `threading.get_ident()` of the running thread; zero when the loop does not run.
    pub(super) thread_id: Arc<AtomicU64>,
    pub(super) steps: &'static StepTypes,
}

/// How a handle is added to the inbox.
type Add = fn(&Inbox<Obj>, Obj) -> Result<(), (Obj, Error)>;

impl LoopCore {
    /// A loop without an engine; closed until it has one, so that `__del__` does not warn.
    pub(super) fn unopened(py: Python<'_>) -> PyResult<Self> {
        let steps = StepTypes::shared(py)?;
        Ok(Self { closed: AtomicBool::new(true), steps, ..Self::default() })
    }

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

    pub(super) fn new_inbox(&self, unpark: Unpark) -> Inbox<Obj> {
        Inbox::new(unpark, self.inbox_capacity.load(Relaxed))
    }

    /// Replaces the inbox; closes and returns the old one with its remaining messages.
    pub(super) fn replace_inbox(&self, inbox: Option<Inbox<Obj>>) -> Option<Inbox<Obj>> {
        let mut place = self.inbox.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut place, inbox)
    }

    /// Calls a method of `object` in a later pass, without memory for a callback.
    #[cold]
    pub(crate) fn owe(
        &self,
        object: Borrowed<'_, '_, PyAny>,
        method: &Bound<'_, PyString>,
        argument: Option<Obj>,
    ) -> PyResult<()> {
        self.owe_a_turn();
        let method = Obj::from_borrowed(method.as_any().as_borrowed());
        let owed = Owed { object: Obj::from_borrowed(object), method, argument };
        Ok(self.owed.with(|list| list.push(owed))?)
    }

    /// Keeps the loop from sleeping long: something waits for memory.
    #[cold]
    pub(super) fn owe_a_turn(&self) {
        self.owes.store(true, Relaxed);
    }

    /// Whether there are pending steps.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        self.owes.load(Relaxed)
    }

    pub(super) fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.ready.visit(|ready| ready.visit(visitor))?;
        self.timers.visit(|timers| timers.visit(visitor))?;
        self.handlers.visit(|handlers| handlers.visit(visitor))?;
        self.watchers.visit(|watchers| watchers.visit(visitor))?;
        self.owed.visit(|list| list.iter().try_for_each(|owed| owed.visit(visitor)))?;
        self.task_factory
            .visit(|factory| factory.iter().try_for_each(|object| visitor.visit(object)))
    }

    /// Drops every reference, each outside its cell.
    pub(super) fn clear(&self) -> PyResult<()> {
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
