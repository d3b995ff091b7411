//! The class `ringloop._native.LoopCore`: a loop's state, and its inbox.
//!
//! State is in [`Confined`] cells and atomics; no cell is open across a call into Python, so
//! callbacks may re-enter at any point.

use ringloop::embed::sys::fd::RawFd;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use ringloop::embed::Token;
use ringloop::embed::sys::datagram::{Batch, Outgoing};

use super::at_once::AtOnce;
use super::contexts::Contexts;
use super::engine::EngineCell;
use super::handlers::{Handler, Handlers, Owed};
use super::inbox::{Bound as InboxBound, Inbox};
use super::meters::Meters;
use super::pulse::{Pulse, Shared, SlowHook};
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
    pub(super) at_once: AtOnce,
    pub(super) pulse: Pulse,
    pub(crate) meters: Meters,
    /// The hook for slow callbacks, in any mode.
    pub(super) slow_hook: Confined<Option<SlowHook>>,
    /// Callbacks are timed: in debug mode, or for that hook.
    pub(super) timed: AtomicBool,
    /// Receive buffer of our own protocols, which copy from it.
    pub(crate) scratch: Confined<Vec<u8>>,
    /// Messages from other threads.
    pub(super) inbox: Inbox,
    pub(super) driver: OnceLock<Chosen>,
    pub(super) task_factory: Confined<Option<Obj>>,
    pub(super) stopping: AtomicBool,
    pub(super) closed: AtomicBool,
    pub(super) debug: AtomicBool,
    /// The object is exactly a `ringloop.Loop`: `call_soon` is not overridden.
    pub(super) exact: AtomicBool,
    /// Timers use an overridden `time()`.
    pub(super) foreign_clock: AtomicBool,
    /// The application overrides `call_at`.
    pub(super) foreign_call_at: AtomicBool,
    /// `ffi::type_version` of the object when that was found out.
    pub(super) clock_version: AtomicU32,
    pub(super) has_task_factory: AtomicBool,
    /// Writes are not deferred to the end of the turn.
    pub(super) writes_eagerly: AtomicBool,
    pub(super) shared: Arc<Shared>,
    pub(super) steps: &'static StepTypes,
}

/// The driver that was opened.
pub(super) struct Chosen {
    pub name: String,
    pub reason: String,
    /// Optional features of the ring, and whether this kernel has them.
    pub features: Vec<(&'static str, bool)>,
    /// The ring was unavailable, and epoll was not requested.
    pub fell_back: bool,
}

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

    /// Whether callbacks are timed.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.timed.load(Relaxed)
    }

    /// Debug mode or the hook has changed.
    pub(super) fn time_callbacks(&self) -> PyResult<()> {
        let has_hook = self.slow_hook.with(|hook| hook.is_some())?;
        self.timed.store(has_hook || self.debug(), Relaxed);
        Ok(())
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
        self.shared.thread_id.load(Relaxed) != 0
    }

    /// The number of the current turn; zero while the loop does not run.
    #[inline]
    pub fn turn_number(&self) -> u64 {
        if self.is_running() { self.shared.turns.count() } else { 0 }
    }

    /// Whether an operation may complete at once in this turn.
    pub fn may_complete_at_once(&self) -> bool {
        self.at_once.has_time(self.turn_number())
    }

    #[inline]
    pub fn is_running_here(&self) -> bool {
        self.shared.thread_id.load(Relaxed) == ffi::thread_id()
    }

    /// What is readable without the loop.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
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
    pub(super) fn send(&self, handle: Obj, bound: InboxBound) -> PyResult<()> {
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
        if self.inbox.send(handle, bound)? {
            self.engine.wake();
        }
        Ok(())
    }

    /// Without the interpreter lock, another thread may have started to run the loop, and to sleep,
    /// after it was seen not to run. It marks the loop as running before it first opens the ready
    /// ring: if it missed the new entry there, it is seen to run here.
    fn wake_if_running_elsewhere(&self) {
        if self.is_running() && !self.is_running_here() {
            self.engine.wake();
        }
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
        self.inbox.visit(visitor)?;
        self.timers.visit(|timers| timers.visit(visitor))?;
        self.handlers.visit(|handlers| handlers.visit(visitor))?;
        self.watchers.visit(|watchers| watchers.visit(visitor))?;
        self.owed.visit(|list| list.iter().try_for_each(|owed| owed.visit(visitor)))?;
        self.slow_hook.visit(|hook| hook.iter().try_for_each(|hook| visitor.visit(&hook.call)))?;
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
        drop(self.slow_hook.with(Option::take)?);
        drop(self.inbox.close()?);
        Ok(())
    }
}
