//! `asyncio.Handle` and `asyncio.TimerHandle`, as true subclasses (the third is in `threadsafe`).
//!
//! Owns: a scheduled callback, and whether it was cancelled. Called by: the loop's methods (which
//! create them), the turn (which runs them), user code (cancel). A cancelled timer is counted by its
//! loop.
//!
//! The base classes' Python methods are kept for rare operations (`__repr__`, ordering, hashing):
//! they read `_callback`, `_args`, `_when`, … through our properties, which hide the base's slots.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3::prelude::*;

use super::callback::{AsHandle, Call, Callback, SLOTS, State};
use super::contexts::{Contexts, Entered};
use super::core::LoopCore;
use super::debug;
use super::exceptions;
use super::timers::Timers;
use crate::ffi::{Args, Definition, IntoObject as _, Obj, Payload, This, members, payload};
use crate::limits;

/// A handle type with its methods.
pub trait HandleType: AsHandle {
    /// `cancel()`.
    fn cancel(this: This<'_, '_, Self>) -> PyResult<()> {
        cancel_handle(this)
    }

    /// `cancelled()`.
    fn cancelled(this: This<'_, '_, Self>) -> bool {
        this.state().is_cancelled()
    }

    /// `_run()`: errors of the callback go to the loop's exception handler, as in `Handle._run`.
    #[inline]
    fn run(this: This<'_, '_, Self>, entered: &mut Entered<'_>) -> PyResult<()> {
        run(this, entered)
    }
}

/// Calls a handle's callback.
#[inline]
pub fn run<T: AsHandle>(this: This<'_, '_, T>, entered: &mut Entered<'_>) -> PyResult<()> {
    let callback = Callback::of(this);
    match callback.run(&this.object(), entered) {
        Ok(()) => Ok(()),
        Err(error) => exceptions::callback_failed(this.object(), callback, error),
    }
}

/// `_run()`. The caller may run it again, so that its contents must stay: the reference shows that
/// it is known elsewhere, even if the interpreter's stack only borrows it.
fn run_from_python<T: HandleType>(this: This<'_, '_, T>) -> PyResult<()> {
    let _known = this.object().to_owned();
    T::run(this, &mut Entered::new(&Contexts::default()))
}

/// Creates a handle of `call` with the arguments from `skip` on.
#[inline(always)]
pub fn new<T: AsHandle>(
    payload: T,
    loop_: Borrowed<'_, '_, LoopCore>,
    call: Call<'_, '_>,
    args: Args<'_, '_>,
    skip: usize,
) -> PyResult<Obj> {
    let mut filled = Ok(());
    let handle = T::native().instantiate_with(loop_.py(), payload, |this| {
        let callback = Callback::of(this);
        filled = callback.fill(loop_.to_owned().into(), call, args, skip);
        if loop_.get().debug() && filled.is_ok() {
            let stack = debug::extract_stack(loop_.py());
            filled = stack.map(|stack| callback.fill_source_traceback(stack));
        }
    })?;
    filled?;
    Ok(handle.into())
}

/// Lists the common members.
pub(super) fn define<T: HandleType>(type_: &mut Definition<T>) {
    members!(type_, T: HandleType;
        cancel() => T::cancel, "Cancel the callback.";
        cancelled() => T::cancelled, "Say whether it was cancelled.";
        get_context() => context, "Return the callback's context.";
        _run() => run_from_python, "Call the callback; its errors go to the loop's handler.";
        get _callback => |this| Callback::of(this).callable(this.py()), "The callable; None once cancelled.";
        get _args => |this| Callback::of(this).arguments(this.py()), "The arguments; None once cancelled.";
        get _context => context, "The context.";
        get _cancelled => |this| this.state().is_cancelled(), "Whether it was cancelled.";
        get _loop => |this| Callback::of(this).loop_(this.py()), "The loop.";
        get _source_traceback => |this| Callback::of(this).source_traceback(this.py()), "Who scheduled it, in debug mode.";
        get _repr => |this| Callback::of(this).repr(this.py()), "What it looked like when it was cancelled, in debug mode.";
    );
}

fn context<'py, T: HandleType>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    Callback::of(this).context(this.py())
}

/// An ordinary handle: just its callback.
#[derive(Default)]
pub struct Handle {
    state: State,
}

/// Cancels any handle.
pub fn cancel_handle<T: AsHandle>(this: This<'_, '_, T>) -> PyResult<()> {
    cancel_once(this).map(drop)
}

/// Cancels a handle; returns its loop if it was not cancelled before.
fn cancel_once<'py, T: AsHandle>(this: This<'_, 'py, T>) -> PyResult<Option<Bound<'py, LoopCore>>> {
    let callback = Callback::of(this);
    if !callback.mark_cancelled() {
        return Ok(None);
    }
    let loop_ = callback.loop_(this.py()).cast_into::<LoopCore>().ok();
    let debug = loop_.as_ref().is_some_and(|core| core.get().debug());
    // For a later log line: "Executing <Handle …> took 2.5 seconds".
    let repr = if debug { Some(this.object().repr()?.into()) } else { None };
    callback.empty(repr);
    Ok(loop_)
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

impl HandleType for Handle {}

impl HandleType for TimerHandle {
    fn cancel(this: This<'_, '_, Self>) -> PyResult<()> {
        let is_scheduled = this.scheduled.load(Relaxed);
        match cancel_once(this)? {
            Some(core) if is_scheduled => core.get().timer_cancelled(this.py()),
            _ => Ok(()),
        }
    }
}

impl Payload for Handle {
    const NAME: &'static CStr = c"ringloop._native.Handle";
    const DOC: &'static CStr = c"A callback that is scheduled on a ringloop loop.";
    const BASE_SLOTS: usize = SLOTS;
    const SPARES_MAX: usize = limits::HANDLES_KEPT;
    payload!(Handle; define define; visit; clear);
}

impl Payload for TimerHandle {
    const NAME: &'static CStr = c"ringloop._native.TimerHandle";
    const DOC: &'static CStr = c"A callback that is scheduled for a time on a ringloop loop.";
    const BASE_SLOTS: usize = SLOTS;
    const SPARES_MAX: usize = limits::HANDLES_KEPT;
    payload!(TimerHandle; define define_timer; visit; clear);
}

fn define_timer(type_: &mut Definition<TimerHandle>) {
    members!(type_, TimerHandle;
        when() => when, "Return the callback's time, on the loop's clock.";
        get _when => when, "The callback's time.";
        get _scheduled => |this| this.scheduled.load(Relaxed), "Whether the loop still waits for it.";
    );
    define(type_);
}

fn when<'py>(this: This<'_, 'py, TimerHandle>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    if this.is_whole.load(Relaxed) {
        return (this.when as i64).into_object(py);
    }
    this.when.into_object(py)
}

impl LoopCore {
    /// Counts a cancelled timer in the heap, and sweeps if there are many.
    fn timer_cancelled(&self, py: Python<'_>) -> PyResult<()> {
        if self.timers.with(Timers::count_cancelled)? { self.sweep_timers(py) } else { Ok(()) }
    }

    #[cold]
    fn sweep_timers(&self, py: Python<'_>) -> PyResult<()> {
        let is_cancelled = |handle: &Obj| {
            let this = TimerHandle::native().get(handle.bind(py));
            this.is_none_or(|this| this.state().is_cancelled())
        };
        for handle in self.timers.with(|timers| timers.sweep(is_cancelled))? {
            if let Some(this) = TimerHandle::native().get(handle.bind(py)) {
                this.unschedule();
            }
        }
        Ok(())
    }
}
