//! How a connection ends: close, abort, a fatal error, or being forgotten.
//!
//! ```text
//!   Open ──close()──▶ Closing ──all sent──▶ Losing ──connection_lost──▶ Lost ──no operation──▶ fd closed
//!     └──abort(), fatal error, nothing to send──▲
//! ```
//! `connection_lost` is scheduled as soon as the transport is done, as asyncio does. The descriptor
//! is closed once the last operation on it has ended: closed earlier, the kernel would neither
//! complete a pending receive nor send FIN. A completion that waits to be handed out is no reason to
//! keep it open: the code behind `connection_lost` may block until the other end sees the close.
//!
//! Called by: every part of the transport. Never does: touch the queues of `read` and `write`.

use std::cell::Cell;

use pyo3::exceptions::{PyBaseException, PyOSError, PyResourceWarning};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

use super::{Endpoint, Stream, Stream_, leaves_the_loop, read, sendfile, tell, write};
use crate::event_loop::{LoopCore, exceptions};
use crate::ffi::{self, Fallible, Obj, Payload, This, intern};

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Bytes may go both ways.
    Open,
    /// Closed by the user; what was written is still being sent.
    Closing,
    /// `connection_lost` is scheduled.
    Losing,
    /// `connection_lost` was called.
    Lost,
}

/// The state, and what asyncio counts beside it.
pub(super) struct Lifecycle {
    state: Cell<State>,
    /// `connection_made` was called or scheduled for this protocol.
    pub protocol_connected: Cell<bool>,
    /// Writes after the connection was lost: the fifth and later ones are logged.
    pub lost_writes: Cell<u32>,
    /// The loop is at work on the connection, and no caller of the user's.
    called_by_loop: Cell<bool>,
}

impl Lifecycle {
    pub fn new() -> Self {
        Self {
            state: Cell::new(State::Open),
            protocol_connected: Cell::new(false),
            lost_writes: Cell::new(0),
            called_by_loop: Cell::new(false),
        }
    }

    /// Run what the loop found to do for the connection: what ends by it, ends in the context of the
    /// connection, as a callback of asyncio's selector does.
    #[inline]
    pub fn called_by_loop<R>(&self, body: impl FnOnce() -> R) -> R {
        self.called_by_loop.set(true);
        let result = body();
        self.called_by_loop.set(false);
        result
    }

    pub fn is_closing(&self) -> bool {
        self.state.get() != State::Open
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.state.get(), State::Losing | State::Lost)
    }

    pub fn state(&self) -> State {
        self.state.get()
    }
}

/// Close once everything written is sent.
pub(super) fn close(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.lifecycle.is_closing() {
        return Ok(());
    }
    this.lifecycle.state.set(State::Closing);
    read::stop(this)?;
    write::send_gathered(this)?;
    if this.write.is_empty() {
        lose(this, None)
    } else {
        Ok(())
    }
}

/// Close now; what was not sent is dropped.
pub(super) fn force_close(this: Stream_<'_, '_>, error: Option<Obj>) -> PyResult<()> {
    if this.lifecycle.is_lost() {
        return Ok(());
    }
    if this.lifecycle.state.get() == State::Open {
        this.lifecycle.state.set(State::Closing);
        read::stop(this)?;
    }
    write::discard(this)?;
    lose(this, error)
}

/// Report an error that ends the connection, and end it.
pub(super) fn fatal_error(this: Stream_<'_, '_>, error: PyErr, message: &str) -> PyResult<()> {
    let (exception, reported) = report_fatal(this, error, message)?;
    let closed = force_close(this, Some(exception));
    reported.and(closed)
}

/// What failed in the loop's work for a connection ends it, such as an allocation: the rest of the stream may have a
/// hole. Of what the kernel refuses asyncio's loop only tells.
pub(super) fn or_end(this: Stream_<'_, '_>, done: PyResult<()>) -> PyResult<()> {
    match done {
        Err(error)
            if !this.lifecycle.is_lost() && !error.is_instance_of::<PyOSError>(this.py()) =>
        {
            fatal_error(this, error, "Fatal error on socket transport")
        }
        done => done,
    }
}

/// Tell the loop's exception handler, or in debug mode the log, of an error that ends a connection;
/// returns the exception, and what the handler raised to leave the loop. An error that must leave the loop does.
pub(crate) fn report_fatal<T: Endpoint>(
    this: This<'_, '_, T>,
    error: PyErr,
    message: &str,
) -> PyResult<(Obj, PyResult<()>)> {
    let is_os_error = error.is_instance_of::<PyOSError>(this.py());
    report_ending(this, error, message, is_os_error)
}

/// As [`report_fatal`], where the caller knows whether the error is an everyday one, only for the log
/// of debug mode.
pub(crate) fn report_ending<T: Endpoint>(
    this: This<'_, '_, T>,
    error: PyErr,
    message: &str,
    is_everyday: bool,
) -> PyResult<(Obj, PyResult<()>)> {
    let py = this.py();
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let exception = error.into_value(py).into_bound(py);
    let reported = report_exception(this, &exception, message, is_everyday);
    // A report that fails keeps no connection open.
    let contained = exceptions::contained(exception.clone(), reported);
    Ok((exception.into_any().into(), contained))
}

fn report_exception<T: Endpoint>(
    this: This<'_, '_, T>,
    exception: &Bound<'_, PyBaseException>,
    message: &str,
    is_everyday: bool,
) -> PyResult<()> {
    let py = this.py();
    let loop_ = this.loop_().get_or_none(py);
    if is_everyday {
        if loop_.cast::<LoopCore>()?.get().debug() {
            let logger = py
                .import(intern!(py, "asyncio.log"))?
                .getattr(intern!(py, "logger"))?;
            let keywords = ffi::new_dict(py)?;
            keywords.set_item(intern!(py, "exc_info"), exception)?;
            logger.call_method(
                intern!(py, "debug"),
                (intern!(py, "%r: %s"), this.object(), Fallible(message)),
                Some(&keywords),
            )?;
        }
    } else {
        let context = ffi::new_dict(py)?;
        context.set_item(intern!(py, "message"), Fallible(message))?;
        context.set_item(intern!(py, "exception"), exception)?;
        context.set_item(intern!(py, "transport"), this.object())?;
        context.set_item(intern!(py, "protocol"), this.protocol().get_or_none(py))?;
        loop_.call_method1(intern!(py, "call_exception_handler"), (context,))?;
    }
    Ok(())
}

/// Everything is sent, or dropped: schedule `connection_lost`.
pub(super) fn lose(this: Stream_<'_, '_>, error: Option<Obj>) -> PyResult<()> {
    let py = this.py();
    if this.lifecycle.is_lost() {
        return Ok(());
    }
    this.lifecycle.state.set(State::Losing);
    this.lifecycle
        .lost_writes
        .set(this.lifecycle.lost_writes.get() + 1);
    let error = error.unwrap_or_else(|| py.None().into_bound(py).into());
    let context = || match this.context.get(py) {
        Some(own) if !cfg!(Py_3_15) && this.lifecycle.called_by_loop.get() => {
            ffi::context_copy(py, &own)
        }
        _ => super::create::context_for(this),
    };
    let step = step(this, intern!(py, "_call_connection_lost"), context);
    let core = this.core(py)?;
    core.get()
        .call_soon_or_owe(step, this.object(), Some(error), |object, error| {
            match (Stream::native().get(object), error) {
                (Some(this), Some(error)) => connection_lost(this, error),
                _ => Ok(()),
            }
        })
}

/// A method of a transport that the loop is to call, and its context.
pub(crate) fn step<T: Payload>(
    this: This<'_, '_, T>,
    method: &Bound<'_, PyString>,
    context: impl FnOnce() -> PyResult<Obj>,
) -> PyResult<(Obj, Obj)> {
    let callback = this.object().getattr(method)?;
    Ok((callback.into(), context()?))
}

/// `_call_connection_lost`: tell the protocol, then let go of everything.
pub(super) fn connection_lost(this: Stream_<'_, '_>, error: &Obj) -> PyResult<()> {
    let py = this.py();
    this.lifecycle.state.set(State::Lost);
    let told = match this.protocol.get(py) {
        Some(protocol) if this.lifecycle.protocol_connected.get() => {
            let method = intern!(py, "connection_lost");
            tell(this, &protocol, method, Some(error)).map(drop)
        }
        _ => Ok(()),
    };
    drop((this.protocol.take(), this.context.take()));
    let interrupted = sendfile::lost(this);
    let closed = close_socket_if_idle(this);
    let detached = match this.server.take() {
        Some(server) => detach(this, &server),
        None => Ok(()),
    };
    told.and(interrupted).and(closed).and(detached)
}

/// `Server._detach` learnt to take the transport in 3.12.1 / 3.13 with `close_clients`.
fn detach(this: Stream_<'_, '_>, server: &Obj) -> PyResult<()> {
    let py = this.py();
    let server = server.bind(py);
    if super::create::server_takes_transport(server)? {
        server.call_method1(intern!(py, "_detach"), (this.object(),))?;
    } else {
        server.call_method0(intern!(py, "_detach"))?;
    }
    Ok(())
}

/// Close the descriptor once the connection is lost and the kernel is done with it.
pub(super) fn close_socket_if_idle(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.lifecycle.state.get() != State::Lost {
        return Ok(());
    }
    let py = this.py();
    let (token, fd) = (this.token.get(), this.socket.original_fd());
    let core = this.core(py)?;
    if !this.in_flight() {
        core.get().release_handler(token, fd)?;
    } else if this.socket.is_some() && this.has_ended(py)? {
        core.get().release_socket(token, fd)?;
    } else {
        return Ok(());
    }
    if let Some(socket) = this.socket.take() {
        socket.bind(py).call_method0(intern!(py, "close"))?;
    }
    Ok(())
}

/// Let go of a transport that only its owner can still do something with: it is paused, or the peer has sent its end
/// and the protocol keeps the connection open, and nothing is being sent. Who forgets it has it collected and its descriptor closed,
/// as a transport of asyncio's is, which its selector does not hold then either.
pub(super) fn rest_if_idle(this: Stream_<'_, '_>) -> PyResult<()> {
    let rests = this.lifecycle.state.get() == State::Open
        && (this.read.is_over() || this.read.is_held_back())
        && !this.in_flight()
        && this.write.is_empty();
    if !rests || !this.registered.replace(false) {
        return Ok(());
    }
    let py = this.py();
    let core = this.core(py)?;
    // Its descriptor stays taken, for as long as it is there.
    core.getattr(intern!(py, "_transports"))?
        .set_item(Fallible(this.socket.original_fd()), this.object())?;
    core.get().rest_transport(this.token.get())
}

/// Have the loop hold on to a transport that has rested: an operation is about to begin.
pub(super) fn ensure_registered(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.registered.get() {
        return Ok(());
    }
    let core = this.core(this.py())?;
    let handler = super::handler(Obj::from_borrowed(this.object()));
    let (token, fd) = (this.token.get(), this.socket.original_fd());
    this.token
        .set(core.get().wake_transport(handler, token, fd)?);
    this.registered.set(true);
    Ok(())
}

/// The loop was closed under the transport.
pub(super) fn abandoned(this: Stream_<'_, '_>) {
    this.read.forget();
    // A child's copy of the queue is the parent's to send.
    if let Ok(core) = this.core(this.py())
        && !core.get().engine.is_of_another_process()
    {
        write::send_last(this);
    }
    this.write.forget();
    if this.lifecycle.state.get() == State::Lost
        && let Some(socket) = this.socket.take()
    {
        let closed = socket
            .bind(this.py())
            .call_method0(intern!(this.py(), "close"));
        if let Err(error) = closed {
            error.write_unraisable(this.py(), None);
        }
    }
}

/// `__del__`: nobody holds the transport, and it was never closed.
pub(super) fn finalize(this: Stream_<'_, '_>) {
    let py = this.py();
    if !this.socket.is_some() {
        return;
    }
    // The warning shows the transport as it is: open.
    let warned = warn_unclosed(this);
    if let Ok(core) = this.core(py) {
        core.get()
            .try_release_socket(this.token.get(), this.socket.original_fd());
    }
    let closed = match this.socket.take() {
        Some(socket) => socket.bind(py).call_method0(intern!(py, "close")).map(drop),
        None => Ok(()),
    };
    let detached = match this.server.take() {
        Some(server) => detach(this, &server),
        None => Ok(()),
    };
    for result in [warned, closed, detached] {
        if let Err(error) = result {
            error.write_unraisable(py, Some(&this.object()));
        }
    }
}

/// The warning of a transport that nobody closed.
pub(crate) fn warn_unclosed<T: Payload>(this: This<'_, '_, T>) -> PyResult<()> {
    let py = this.py();
    let template = intern!(py, "unclosed transport %r");
    let text = ffi::fill_template(template, &[&this.object()])?;
    let keywords = ffi::new_dict(py)?;
    keywords.set_item(intern!(py, "source"), this.object())?;
    let category = py.get_type::<PyResourceWarning>();
    warn_function(py)?.call((text, category), Some(&keywords))?;
    Ok(())
}

/// `warnings.warn`, which is also needed when nothing can be imported any more.
pub(super) fn warn_function(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static WARN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    ffi::imported(&WARN, intern!(py, "warnings"), intern!(py, "warn"))
}
