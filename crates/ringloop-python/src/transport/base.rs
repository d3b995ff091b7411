//! Common part of all transports of a loop: a protocol, a state, and how they end.
//!
//! Owns: [`Base`], which streams, datagram endpoints and pipes hold; each implements [`Endpoint`]
//! for its differences. Called by: all of them, and user code (the members of [`define`]). Has no
//! I/O.
//!
//! ```text
//!   Open ──close()──▶ Closing ──all sent──▶ Losing ──connection_lost──▶ Lost
//!     └──abort(), fatal error, nothing to send──▲
//! ```
//! As in asyncio, `connection_lost` is scheduled as soon as the transport is done. The descriptor
//! is closed once the kernel is done with it.

use std::cell::Cell;

use pyo3::exceptions::{PyBaseException, PyOSError, PyResourceWarning};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};
use ringloop::embed::Driver;

use super::thread::{self, Change, Owned, Owner};
use crate::event_loop::exceptions::{self, leaves_the_loop};
use crate::event_loop::{Completes, LoopCore};
use crate::ffi::{
    self, Argument, Definition, Obj, ObjCell, Payload, This, Visited, Visitor, imported, intern,
    members,
};
use crate::limits;

/// State of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Reads and writes are allowed.
    Open,
    /// Closed by the application; written data is still being sent.
    Closing,
    /// `connection_lost` is scheduled, or being called.
    Losing,
    /// `connection_lost` was called.
    Lost,
}

/// Common state of all transports.
pub(crate) struct Base {
    /// The loop, and the thread that runs it.
    pub owner: Owner,
    /// Empty once the connection is lost.
    pub protocol: ObjCell,
    /// Context of protocol callbacks; empty if it is the caller's.
    pub context: ObjCell,
    pub state: Cell<State>,
    pub lost_writes: LostWrites,
}

/// Number of writes after the connection was lost, and one for the loss.
#[derive(Default)]
pub(crate) struct LostWrites(Cell<u32>);

impl LostWrites {
    pub fn get(&self) -> u32 {
        self.0.get()
    }

    pub fn count(&self) {
        self.0.set(self.0.get() + 1);
    }

    /// Drops a write of `object` after the end. asyncio logs the fifth and later ones.
    pub fn drop_write(&self, object: &Bound<'_, PyAny>, text: &str) -> PyResult<()> {
        if self.get() >= limits::LOST_WRITES_BEFORE_WARNING {
            ffi::released(object, || exceptions::warn(object.py(), text))?;
        }
        self.count();
        Ok(())
    }
}

impl Base {
    pub fn new(
        loop_: &Bound<'_, LoopCore>,
        protocol: Option<&Bound<'_, PyAny>>,
        context: Option<Obj>,
    ) -> Self {
        Self {
            owner: Owner::new(loop_),
            protocol: ObjCell::new(protocol.map(|protocol| protocol.clone().into())),
            context: ObjCell::new(context),
            state: Cell::new(State::Open),
            lost_writes: LostWrites::default(),
        }
    }

    pub fn core<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, LoopCore>> {
        self.owner.core(py)
    }

    /// Opens the loop's driver.
    pub fn driver<R>(&self, py: Python<'_>, body: impl FnOnce(&mut Driver) -> R) -> PyResult<R> {
        self.core(py)?.get().engine.driver(body)
    }

    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        self.owner.is_elsewhere()
    }

    pub fn is_closing(&self) -> bool {
        self.state.get() != State::Open
    }

    /// As [`Base::is_closing`], for the public method: also true after another thread called
    /// `close()`.
    pub fn appears_closing(&self) -> bool {
        self.is_closing() || self.owner.will_close()
    }

    /// Whether `connection_lost` was called or is scheduled.
    pub fn is_lost(&self) -> bool {
        matches!(self.state.get(), State::Losing | State::Lost)
    }

    /// Whether `connection_lost` was called.
    pub fn is_over(&self) -> bool {
        self.state.get() == State::Lost
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.owner.visit(visitor)?;
        self.protocol.visit(visitor)?;
        self.context.visit(visitor)
    }

    /// Loop and descriptor stay: the finaliser has run, and a cleared transport that is still
    /// reachable behaves like a closed one.
    pub fn clear(&self) {
        drop((self.protocol.take(), self.context.take()));
    }
}

/// Differences between the transports.
pub(crate) trait Endpoint: Completes {
    /// The first word of asyncio's messages: "… transport".
    const KIND: &'static str;

    fn base(&self) -> &Base;
    /// Closes once everything written is sent.
    fn close(this: This<'_, '_, Self>) -> PyResult<()>;
    /// Closes now; unsent data is dropped.
    fn force_close(this: This<'_, '_, Self>, error: Option<Obj>) -> PyResult<()>;
    /// Drops all references: `connection_lost` was called.
    fn lost(this: This<'_, '_, Self>) -> PyResult<()>;
    /// Whether the descriptor is still open.
    fn is_unclosed(&self) -> bool;
    /// Closes it, in the finaliser.
    fn close_unclosed(this: This<'_, '_, Self>) -> PyResult<()>;

    /// Result of `is_closing` in the loop's thread.
    fn is_closing(this: This<'_, '_, Self>) -> PyResult<bool> {
        Ok(this.base().is_closing())
    }
    /// Replaces the protocol.
    fn set_protocol(this: This<'_, '_, Self>, protocol: Argument<'_, '_>) -> PyResult<()> {
        let protocol = Obj::from_borrowed(protocol);
        drop(this.base().protocol.replace(Some(protocol)));
        Ok(())
    }
    /// Context in which `connection_lost` is scheduled.
    fn last_context(this: This<'_, '_, Self>) -> PyResult<Obj> {
        ffi::context_copy_current(this.py())
    }
}

/// An endpoint whose reading can be paused.
pub(crate) trait Readable: Endpoint {
    /// Whether the application has paused it.
    fn is_paused(&self) -> bool;
    /// Pauses; `false` if that changes nothing.
    fn pause(this: This<'_, '_, Self>) -> PyResult<bool>;
    /// Resumes; `false` if that changes nothing.
    fn resume(this: This<'_, '_, Self>) -> PyResult<bool>;
}

impl<T: Endpoint> Owned for T {
    fn owner(&self) -> &Owner {
        &self.base().owner
    }
}

/// Lists the members of all endpoints.
pub(crate) fn define<T: Endpoint>(type_: &mut Definition<T>) {
    members!(type_, T: Endpoint;
        close() => close, "Close once everything is sent.";
        is_closing() => is_closing, "Say whether it is closing or closed.";
        set_protocol(protocol) => T::set_protocol, "Hand over to another protocol.";
        get_protocol() => protocol, "Return the current protocol.";
        _call_connection_lost(exc) => call_connection_lost, "Tell the protocol and let go of everything.";
        get _loop => |this| this.base().owner.loop_(this.py()), "The loop.";
        get _protocol => protocol, "The protocol; None once lost.";
        get _closing => is_closing, "Whether it is closing or closed.";
    );
}

/// Lists the members of endpoints that can be paused.
pub(crate) fn define_reading<T: Readable>(type_: &mut Definition<T>) {
    members!(type_, T: Readable;
        pause_reading() => |this| set_reading(this, true), "Deliver nothing until resume_reading().";
        resume_reading() => |this| set_reading(this, false), "Deliver again.";
        is_reading() => is_reading, "Say whether anything is delivered.";
        get _paused => is_paused, "Whether reading is paused.";
    );
}

fn close<T: Endpoint>(this: This<'_, '_, T>) -> PyResult<()> {
    thread::in_loop(this, intern!(this.py(), "close"), Change::Closing, T::close)
}

/// `is_closing()`.
pub(crate) fn is_closing<T: Endpoint>(this: This<'_, '_, T>) -> PyResult<bool> {
    if this.base().is_elsewhere() || this.base().owner.will_close() {
        return Ok(this.base().appears_closing());
    }
    T::is_closing(this)
}

fn protocol<'py, T: Endpoint>(this: This<'_, 'py, T>) -> Bound<'py, PyAny> {
    this.base().protocol.get_or_none(this.py())
}

fn call_connection_lost<T: Endpoint>(
    this: This<'_, '_, T>,
    error: Argument<'_, '_>,
) -> PyResult<()> {
    connection_lost(this, &Obj::from_borrowed(error))
}

/// `pause_reading()` or `resume_reading()`.
pub(crate) fn set_reading<T: Readable>(this: This<'_, '_, T>, pauses: bool) -> PyResult<()> {
    let py = this.py();
    let (name, text) = if pauses {
        (intern!(py, "pause_reading"), "%r pauses reading")
    } else {
        (intern!(py, "resume_reading"), "%r resumes reading")
    };
    thread::in_loop(this, name, Change::Reading(pauses), |this| {
        this.base().owner.reading_called();
        let change = if pauses { T::pause } else { T::resume };
        if !this.base().is_closing() && change(this)? {
            return log_debug(this, "debug", text);
        }
        Ok(())
    })
}

fn is_reading<T: Readable>(this: This<'_, '_, T>) -> bool {
    !this.base().appears_closing() && !is_paused(this)
}

fn is_paused<T: Readable>(this: This<'_, '_, T>) -> bool {
    this.base().owner.will_pause(this.is_paused())
}

/// A new `_extra` dictionary with the caller's entries.
pub(crate) fn copy_extra<'py>(
    py: Python<'py>,
    known: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyDict>> {
    known.map_or_else(|| ffi::new_dict(py), PyDictMethods::copy)
}

/// In a child of a fork, which closes its copy of the descriptor alone: what is in flight and what was
/// written are the parent's. Call before a transport is closed.
pub(crate) fn leave_to_parent<T: Endpoint>(this: This<'_, '_, T>) -> PyResult<()> {
    if this.base().core(this.py())?.get().engine.is_of_another_process() {
        T::abandoned(this);
    }
    Ok(())
}

/// Schedules the result of a future that waits for a transport.
pub(crate) fn wake_soon(loop_: &Bound<'_, LoopCore>, waiter: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = loop_.py();
    let wake = imported!(py, PyAny, "ringloop._native", "wake_waiter")?;
    let context = ffi::context_copy_current(py)?;
    loop_.get().call_soon_step(wake.clone().into(), Some(waiter.clone().into()), context)
}

/// Resolve a future that nothing has cancelled.
#[pyfunction]
pub(crate) fn wake_waiter(waiter: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = waiter.py();
    if !waiter.call_method0(intern!(py, "cancelled"))?.is_truthy()? {
        waiter.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// As [`wake_waiter`], if there is a waiter.
pub(crate) fn wake(waiter: &Bound<'_, PyAny>) -> PyResult<()> {
    if waiter.is_none() { Ok(()) } else { wake_waiter(waiter) }
}

/// Whether a protocol is a `BufferedProtocol`.
pub(crate) fn is_buffered(protocol: &Bound<'_, PyAny>) -> PyResult<bool> {
    protocol.is_instance(imported!(protocol.py(), PyType, "asyncio.protocols", "BufferedProtocol")?)
}

/// Calls a method of the protocol in the connection's context; `None` if there is no protocol.
pub(crate) fn call_protocol<T: Endpoint>(
    this: This<'_, '_, T>,
    method: &Bound<'_, PyString>,
    argument: Option<&Obj>,
) -> PyResult<Option<Obj>> {
    with_protocol(this, |protocol| tell(this, protocol, method, argument))
}

/// As [`call_protocol`], in the current context.
pub(crate) fn call_protocol_here<T: Endpoint>(
    this: This<'_, '_, T>,
    method: &Bound<'_, PyString>,
    argument: Option<&Obj>,
) -> PyResult<()> {
    match this.base().protocol.get(this.py()) {
        Some(protocol) => tell(this, &protocol, method, argument).map(drop),
        None => Ok(()),
    }
}

/// Calls a method of `this`'s protocol in the current context. Other threads may enter `this`
/// meanwhile.
pub(crate) fn tell<T: Payload>(
    this: This<'_, '_, T>,
    protocol: &Obj,
    method: &Bound<'_, PyString>,
    argument: Option<&Obj>,
) -> PyResult<Obj> {
    let py = this.py();
    ffi::released(&this.object(), || match argument {
        Some(argument) => ffi::call_method(py, method, &[protocol, argument]),
        None => ffi::call_method(py, method, &[protocol]),
    })
}

/// Runs `body` with the protocol, in the connection's context; `None` if there is no protocol.
#[inline]
pub(crate) fn with_protocol<T: Endpoint, R>(
    this: This<'_, '_, T>,
    body: impl FnOnce(&Obj) -> PyResult<R>,
) -> PyResult<Option<R>> {
    let py = this.py();
    let Some(protocol) = this.base().protocol.get(py) else {
        return Ok(None);
    };
    let Some(context) = this.base().context.get(py) else {
        return ffi::released(&this.object(), || body(&protocol)).map(Some);
    };
    ffi::context_enter(py, &context)?;
    let result = ffi::released(&this.object(), || body(&protocol));
    ffi::context_exit(py, &context)?;
    result.map(Some)
}

/// Makes the loop call a method, in a copy of the current context.
pub(crate) fn call_soon<T: Owned>(
    this: This<'_, '_, T>,
    method: &Bound<'_, PyString>,
) -> PyResult<()> {
    let py = this.py();
    let context = ffi::context_copy_current(py);
    this.owner().core(py)?.get().call_method_soon(this.object(), method, None, context)
}

/// Schedules `connection_lost`, once.
pub(crate) fn lose<T: Endpoint>(this: This<'_, '_, T>, error: Option<Obj>) -> PyResult<()> {
    let py = this.py();
    let base = this.base();
    if base.is_lost() {
        return Ok(());
    }
    base.state.set(State::Losing);
    let error = error.unwrap_or_else(|| py.None().into_bound(py).into());
    let method = intern!(py, "_call_connection_lost");
    let context = T::last_context(this);
    base.core(py)?.get().call_method_soon(this.object(), method, Some(error), context)
}

/// `_call_connection_lost`: calls the protocol, then drops all references.
pub(crate) fn connection_lost<T: Endpoint>(this: This<'_, '_, T>, error: &Obj) -> PyResult<()> {
    let base = this.base();
    if base.is_over() {
        return Ok(());
    }
    base.state.set(State::Losing);
    let method = intern!(this.py(), "connection_lost");
    let told = call_protocol_here(this, method, Some(error));
    base.state.set(State::Lost);
    drop((base.protocol.take(), base.context.take()));
    told.and(T::lost(this))
}

/// Reports a fatal error and ends the transport. An operating system error is logged only in debug
/// mode.
pub(crate) fn fatal_error<T: Endpoint>(
    this: This<'_, '_, T>,
    error: PyErr,
    message: &str,
) -> PyResult<()> {
    let is_everyday = error.is_instance_of::<PyOSError>(this.py());
    fatal_error_as(this, error, message, is_everyday)
}

/// As [`fatal_error`]; the caller knows whether the error is an expected one, which affects only
/// the log. An error that must leave the loop does.
pub(crate) fn fatal_error_as<T: Endpoint>(
    this: This<'_, '_, T>,
    error: PyErr,
    message: &str,
    is_everyday: bool,
) -> PyResult<()> {
    let py = this.py();
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let exception = error.into_value(py).into_bound(py);
    let reported = if is_everyday {
        log_error(this, &exception, message)
    } else {
        report_to_handler(this, &exception, message)
    };
    // A failing report does not keep the connection open.
    let contained = exceptions::contained(exception.clone(), reported);
    let closed = T::force_close(this, Some(exception.into_any().into()));
    contained.and(closed)
}

/// A failure in the loop's own work for a transport, such as an allocation, ends it: its data may
/// have a gap. For errors of the kernel, asyncio's loop only reports them.
pub(crate) fn or_end<T: Endpoint>(this: This<'_, '_, T>, done: PyResult<()>) -> PyResult<()> {
    match done {
        Err(error) if !this.base().is_lost() && !error.is_instance_of::<PyOSError>(this.py()) => {
            fatal_error(this, error, &format!("Fatal error on {} transport", T::KIND))
        }
        done => done,
    }
}

/// Nothing more can be read, or what was read cannot be given to the protocol: ends the transport.
pub(crate) fn read_failed<T: Endpoint>(this: This<'_, '_, T>, error: PyErr) -> PyResult<()> {
    fatal_error(this, error, &format!("Fatal read error on {} transport", T::KIND))
}

/// Nothing more can be written: ends the transport.
pub(crate) fn write_failed<T: Endpoint>(this: This<'_, '_, T>, error: PyErr) -> PyResult<()> {
    fatal_error(this, error, &format!("Fatal write error on {} transport", T::KIND))
}

/// Reports an exception of a protocol callback that does not end the transport.
pub(crate) fn report<T: Endpoint>(
    this: This<'_, '_, T>,
    told: PyResult<()>,
    message: impl FnOnce() -> PyResult<String>,
) -> PyResult<()> {
    told.or_else(|error| {
        exceptions::contain(this.py(), error, |exception| {
            report_to_handler(this, exception, &message()?)
        })
    })
}

/// Reports an exception of a callback like asyncio's loop, and goes on.
pub(crate) fn report_callback<T: Endpoint>(
    this: This<'_, '_, T>,
    told: PyResult<()>,
    callback: &str,
) -> PyResult<()> {
    report(this, told, || {
        let name = this.object().get_type().name()?;
        Ok(format!("Exception in callback {name}.{callback}()"))
    })
}

fn report_to_handler<'py, T: Endpoint>(
    this: This<'_, 'py, T>,
    exception: &Bound<'py, PyBaseException>,
    message: &str,
) -> PyResult<()> {
    let py = this.py();
    let protocol = this.base().protocol.get_or_none(py);
    call_handler(this, exception, message, &this.object(), &protocol)
}

/// Calls the loop's exception handler with a transport and its protocol.
pub(crate) fn call_handler<'py, T: Owned>(
    this: This<'_, 'py, T>,
    exception: &Bound<'py, PyBaseException>,
    message: &str,
    transport: &Bound<'py, PyAny>,
    protocol: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let py = this.py();
    let more = [(intern!(py, "transport"), transport), (intern!(py, "protocol"), protocol)];
    let loop_ = this.owner().loop_(py);
    ffi::released(&this.object(), || exceptions::report(&loop_, message, exception, &more))
}

/// Logs an error that is expected, in debug mode.
pub(crate) fn log_error<'py, T: Owned>(
    this: This<'_, 'py, T>,
    exception: &Bound<'py, PyBaseException>,
    message: &str,
) -> PyResult<()> {
    let py = this.py();
    if !this.owner().core(py)?.get().debug() {
        return Ok(());
    }
    let text = ffi::new_str(py, message)?;
    let object = this.object();
    let arguments = (intern!(py, "%r: %s"), &object, text);
    ffi::released(&object, || exceptions::log(intern!(py, "debug"), arguments, Some(exception)))
}

/// Logs `text`, whose `%r` is the object, to asyncio's log in debug mode.
pub(crate) fn log_debug<T: Owned>(this: This<'_, '_, T>, level: &str, text: &str) -> PyResult<()> {
    let py = this.py();
    if !this.owner().core(py)?.get().debug() {
        return Ok(());
    }
    let (level, text) = (ffi::new_str(py, level)?, ffi::new_str(py, text)?);
    let object = this.object();
    ffi::released(&object, || exceptions::log(&level, (text, &object), None))
}

/// `__del__`: the transport is unreferenced and was never closed.
pub(crate) fn finalize<T: Endpoint>(this: This<'_, '_, T>) {
    if !this.is_unclosed() {
        return;
    }
    // The warning shows the transport's state: open.
    for result in [warn_unclosed(this), T::close_unclosed(this)] {
        if let Err(error) = result {
            error.write_unraisable(this.py(), Some(&this.object()));
        }
    }
}

fn warn_unclosed<T: Payload>(this: This<'_, '_, T>) -> PyResult<()> {
    let py = this.py();
    let template = intern!(py, "unclosed transport %r");
    let text = ffi::fill_template(template, &[&this.object()])?;
    let keywords = ffi::new_dict(py)?;
    keywords.set_item(intern!(py, "source"), this.object())?;
    let category = py.get_type::<PyResourceWarning>();
    warn_function(py)?.call((text, category), Some(&keywords))?;
    Ok(())
}

/// `warnings.warn`, needed even when imports are no longer possible.
pub(crate) fn warn_function(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    imported!(py, PyAny, "warnings", "warn")
}
