//! `asyncio.Handle` and `asyncio.TimerHandle`, as true subclasses (the third is in `threadsafe`).
//!
//! Owns: a scheduled callback, and whether it was cancelled. Called by: the loop's methods (which
//! create them), the turn (which runs them), user code (cancel). Handles do not know the queues; a
//! cancelled timer is counted by its loop.
//!
//! The base classes' Python methods are kept for rare operations (`__repr__`, ordering, hashing):
//! they read `_callback`, `_args`, `_when`, … through our properties, which hide the base's slots.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::prelude::*;

use super::callback::{AsHandle, Callback, Contexts, SLOTS, State};
use super::core::LoopCore;
use super::exceptions;
use super::threadsafe::ThreadSafeHandle;
use crate::ffi::{
    Definition, IntoObject as _, Native, Obj, Payload, This, Visited, Visitor, intern, members,
};

/// Adds the common members: entries cannot be generic, so each type lists them itself.
macro_rules! define_common {
    ($target:ty, $type:ident, $cancel:path, $cancelled:path, $run:path) => {
        members!($type, $target;
            cancel() => $cancel, "Cancel the callback.";
            cancelled() => $cancelled, "Say whether it was cancelled.";
            get_context() => $crate::event_loop::handle::context, "Return the callback's context.";
            _run() => $run, "Call the callback; its errors go to the loop's handler.";
            get _callback => $crate::event_loop::handle::callback, "The callable; None once cancelled.";
            get _args => $crate::event_loop::handle::arguments, "The arguments; None once cancelled.";
            get _context => $crate::event_loop::handle::context, "The context.";
            get _cancelled => $crate::event_loop::handle::is_cancelled, "Whether it was cancelled.";
            get _loop => $crate::event_loop::handle::loop_, "The loop.";
            get _source_traceback => $crate::event_loop::handle::source_traceback, "Who scheduled it, in debug mode.";
            get _repr => $crate::event_loop::handle::repr, "What it looked like when it was cancelled, in debug mode.";
        );
    };
}
pub(super) use define_common;

/// An ordinary handle: just its callback.
#[derive(Default)]
pub struct Handle {
    state: State,
}

/// Cancels any handle.
pub fn cancel_handle<T: AsHandle>(this: This<'_, '_, T>) -> PyResult<()> {
    let callback = Callback::of(this);
    if !callback.mark_cancelled() {
        return Ok(());
    }
    let py = this.py();
    let debug = callback
        .loop_(py)
        .cast::<LoopCore>()
        .is_ok_and(|core| core.get().debug());
    // For a later log line: "Executing <Handle …> took 2.5 seconds".
    let repr = if debug {
        Some(this.object().repr()?.into())
    } else {
        None
    };
    callback.empty(repr);
    Ok(())
}

/// Below it every integer is exactly representable as a float.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// A handle with a deadline.
pub struct TimerHandle {
    state: State,
    when: f64,
    /// `call_at` was given an integer, which `when()` must return.
    is_whole: AtomicBool,
    /// In the loop's heap. The loop updates it without the handle's lock.
    scheduled: AtomicBool,
}

impl TimerHandle {
    /// Makes the payload; it counts as scheduled.
    #[inline]
    pub fn new(when: f64) -> Self {
        Self {
            state: State::default(),
            when,
            is_whole: AtomicBool::new(false),
            scheduled: AtomicBool::new(true),
        }
    }

    /// Records that the deadline was an `int`; one that a float cannot represent stays a float.
    pub fn mark_whole(&self) {
        let is_exact = self.when.abs() < WHOLE_MAX;
        self.is_whole.store(is_exact, Relaxed);
    }

    /// Records that the heap has removed it.
    pub fn unschedule(&self) {
        self.scheduled.store(false, Relaxed);
    }
}

impl AsHandle for Handle {
    fn state(&self) -> &State {
        &self.state
    }
}

impl AsHandle for TimerHandle {
    fn state(&self) -> &State {
        &self.state
    }
}

impl Payload for Handle {
    const NAME: &'static CStr = c"ringloop._native.Handle";
    const DOC: &'static CStr = c"A callback that is scheduled on a ringloop loop.";
    const BASE_SLOTS: usize = SLOTS;

    fn native() -> &'static Native<Self> {
        static TYPE: Native<Handle> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        define_common!(Handle, type_, cancel, cancelled, run_method);
    }

    fn visit(&self, _visitor: &mut dyn Visitor) -> Visited {
        Visited::Continue(())
    }

    fn clear(&self) {}
}

impl Payload for TimerHandle {
    const NAME: &'static CStr = c"ringloop._native.TimerHandle";
    const DOC: &'static CStr = c"A callback that is scheduled for a time on a ringloop loop.";
    const BASE_SLOTS: usize = SLOTS;

    fn native() -> &'static Native<Self> {
        static TYPE: Native<TimerHandle> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        members!(type_, TimerHandle;
            when() => when_property, "Return the callback's time, on the loop's clock.";
            get _when => when_property, "The callback's time.";
            get _scheduled => scheduled, "Whether the loop still waits for it.";
        );
        define_common!(TimerHandle, type_, cancel_timer, cancelled, run_method);
    }

    fn visit(&self, _visitor: &mut dyn Visitor) -> Visited {
        Visited::Continue(())
    }

    fn clear(&self) {}
}

/// Calls a handle's callback; errors go to the loop's exception handler, as in `Handle._run`.
#[inline]
pub fn run<T: AsHandle>(this: This<'_, '_, T>, contexts: &Contexts) -> PyResult<()> {
    let callback = Callback::of(this);
    match callback.run(&this.object(), contexts) {
        Ok(()) => Ok(()),
        Err(error) => exceptions::callback_failed(this.object(), callback, error),
    }
}

fn cancel(this: This<'_, '_, Handle>) -> PyResult<()> {
    cancel_handle(this)
}

fn cancel_timer(this: This<'_, '_, TimerHandle>) -> PyResult<()> {
    let counts = this.scheduled.load(Relaxed) && !this.state.is_cancelled();
    cancel_handle(this)?;
    let loop_ = Callback::of(this).loop_(this.py());
    if counts && let Ok(core) = loop_.cast::<LoopCore>() {
        core.get().timer_cancelled(this.py())?;
    }
    Ok(())
}

fn when_property<'py>(this: This<'_, 'py, TimerHandle>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    if this.is_whole.load(Relaxed) {
        return (this.when as i64).into_object(py);
    }
    this.when.into_object(py)
}

fn scheduled(this: This<'_, '_, TimerHandle>) -> bool {
    this.scheduled.load(Relaxed)
}

fn cancelled<T: AsHandle>(this: This<'_, '_, T>) -> bool {
    this.state().is_cancelled()
}

fn run_method<T: AsHandle>(this: This<'_, '_, T>) -> PyResult<()> {
    run(this, &Contexts::new())
}

pub(super) fn callback<'py, T: AsHandle>(this: This<'_, 'py, T>) -> Bound<'py, PyAny> {
    Callback::of(this).callable(this.py())
}

pub(super) fn arguments<'py, T: AsHandle>(
    this: This<'_, 'py, T>,
) -> PyResult<Option<Bound<'py, pyo3::types::PyTuple>>> {
    Callback::of(this).arguments(this.py())
}

pub(super) fn context<'py, T: AsHandle>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    Callback::of(this).context(this.py())
}

pub(super) fn is_cancelled<T: AsHandle>(this: This<'_, '_, T>) -> bool {
    this.state().is_cancelled()
}

pub(super) fn loop_<'py, T: AsHandle>(this: This<'_, 'py, T>) -> Bound<'py, PyAny> {
    Callback::of(this).loop_(this.py())
}

pub(super) fn source_traceback<'py, T: AsHandle>(this: This<'_, 'py, T>) -> Bound<'py, PyAny> {
    Callback::of(this).source_traceback(this.py())
}

pub(super) fn repr<T: AsHandle>(this: This<'_, '_, T>) -> Option<Obj> {
    Callback::of(this).repr(this.py())
}

/// Creates the types.
pub fn create_types(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let events = py.import(intern!(py, "asyncio.events"))?;
    let handle = Handle::native().create(py, events.getattr(intern!(py, "Handle"))?.cast()?)?;
    let timer =
        TimerHandle::native().create(py, events.getattr(intern!(py, "TimerHandle"))?.cast()?)?;
    module.add("Handle", handle)?;
    module.add("TimerHandle", timer)?;
    // From 3.14 on.
    if let Some(base) = events.getattr_opt(intern!(py, "_ThreadSafeHandle"))? {
        let threadsafe = ThreadSafeHandle::native().create(py, base.cast()?)?;
        module.add("_ThreadSafeHandle", threadsafe)?;
    }
    Ok(())
}
