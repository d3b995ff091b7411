//! How an endpoint ends: close, abort, a fatal error, or being forgotten.
//!
//! ```text
//!   Open ──close()──▶ Closing ──all sent──▶ Losing ──connection_lost──▶ Lost ──no poll──▶ fd closed
//!     └──abort(), fatal error, nothing to send──▲
//! ```
//! The descriptor is closed once the last poll on it has completed: until then the kernel holds the
//! socket, and its port.
//!
//! Called by: every part of the endpoint. Never does: send or receive.

use std::cell::Cell;

use pyo3::exceptions::{PyBaseException, PyOSError};
use pyo3::prelude::*;

use super::{Armed, Datagram, Datagram_, read, write};
use crate::error;
use crate::event_loop::exceptions;
use crate::ffi::{self, Fallible, Obj, Payload, intern};
use crate::transport::{leaves_the_loop, lifecycle as shared, tell};

/// Where an endpoint stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Closed by the user; what was queued is still being sent.
    Closing,
    /// `connection_lost` is scheduled.
    Losing,
    /// `connection_lost` was called.
    Lost,
}

/// The state, and what asyncio counts beside it.
pub(super) struct Lifecycle {
    state: Cell<State>,
    /// Sends after the end: the fifth and later ones are logged.
    pub lost_sends: Cell<u32>,
}

impl Lifecycle {
    pub fn new() -> Self {
        Self {
            state: Cell::new(State::Open),
            lost_sends: Cell::new(0),
        }
    }

    pub fn is_closing(&self) -> bool {
        self.state.get() != State::Open
    }

    /// `connection_lost` was called or is about to be.
    pub fn is_lost(&self) -> bool {
        matches!(self.state.get(), State::Losing | State::Lost)
    }

    /// `connection_lost` was called: the socket is gone.
    pub fn is_over(&self) -> bool {
        self.state.get() == State::Lost
    }
}

/// Close once everything queued is sent.
pub(super) fn close(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.lifecycle.is_closing() {
        return Ok(());
    }
    this.lifecycle.state.set(State::Closing);
    read::stop(this)?;
    let sent = write::send_gathered(this);
    let lost = if this.write.is_blocked() {
        Ok(())
    } else {
        this.write.discard();
        lose(this, None)
    };
    sent.and(lost)
}

/// Close now; what was not sent is dropped.
pub(super) fn force_close(this: Datagram_<'_, '_>, error: Option<Obj>) -> PyResult<()> {
    if this.lifecycle.is_lost() {
        return Ok(());
    }
    // asyncio has sent it by now.
    let sent = write::send_gathered(this);
    this.write.discard();
    this.disarm(this.py(), this.write.armed())?;
    if this.lifecycle.state.get() == State::Open {
        this.lifecycle.state.set(State::Closing);
        read::stop(this)?;
    }
    sent.and(lose(this, error))
}

/// Report an error that ends the endpoint, and end it.
pub(super) fn fatal_error(this: Datagram_<'_, '_>, error: PyErr, message: &str) -> PyResult<()> {
    let (exception, reported) = shared::report_fatal(this, error, message)?;
    let closed = force_close(this, Some(exception));
    reported.and(closed)
}

/// What failed in the loop's work for an endpoint, such as an allocation, ends it.
pub(super) fn or_end(this: Datagram_<'_, '_>, done: PyResult<()>) -> PyResult<()> {
    match done {
        Err(error)
            if !this.lifecycle.is_closing() && !error.is_instance_of::<PyOSError>(this.py()) =>
        {
            fatal_error(this, error, "Fatal error on datagram transport")
        }
        done => done,
    }
}

/// The descriptor cannot be polled: it was closed under the transport, say.
pub(super) fn poll_failed(this: Datagram_<'_, '_>, errno: i32) -> PyResult<()> {
    let error = error::from_errno(errno);
    fatal_error(this, error, "Fatal read error on datagram transport")
}

/// An exception of the protocol does not end a datagram endpoint: as asyncio, whose reader callback
/// it leaves, tell the exception handler.
pub(super) fn report_callback(
    this: Datagram_<'_, '_>,
    told: PyResult<()>,
    callback: &str,
) -> PyResult<()> {
    let py = this.py();
    let Err(error) = told else { return Ok(()) };
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let exception = error.into_value(py).into_bound(py);
    let reported = report_exception(this, &exception, callback);
    exceptions::contained(exception, reported)
}

fn report_exception(
    this: Datagram_<'_, '_>,
    exception: &Bound<'_, PyBaseException>,
    callback: &str,
) -> PyResult<()> {
    let py = this.py();
    let name = this.object().get_type().name()?;
    let context = ffi::new_dict(py)?;
    let message = format!("Exception in callback {name}.{callback}()");
    context.set_item(intern!(py, "message"), Fallible(message))?;
    context.set_item(intern!(py, "exception"), exception)?;
    context.set_item(intern!(py, "transport"), this.object())?;
    context.set_item(intern!(py, "protocol"), this.protocol.get_or_none(py))?;
    this.loop_
        .get_or_none(py)
        .call_method1(intern!(py, "call_exception_handler"), (context,))?;
    Ok(())
}

/// Everything is sent, or dropped: schedule `connection_lost`.
pub(super) fn lose(this: Datagram_<'_, '_>, error: Option<Obj>) -> PyResult<()> {
    let py = this.py();
    if this.lifecycle.is_lost() {
        return Ok(());
    }
    this.lifecycle.state.set(State::Losing);
    this.lifecycle
        .lost_sends
        .set(this.lifecycle.lost_sends.get() + 1);
    let error = error.unwrap_or_else(|| py.None().into_bound(py).into());
    let method = intern!(py, "_call_connection_lost");
    let step = shared::step(this, method, || ffi::context_copy_current(py));
    let core = this.core(py)?;
    core.get()
        .call_soon_or_owe(step, this.object(), Some(error), |object, error| {
            match (Datagram::native().get(object), error) {
                (Some(this), Some(error)) => connection_lost(this, error),
                _ => Ok(()),
            }
        })
}

/// `_call_connection_lost`: tell the protocol, then let go of everything.
pub(super) fn connection_lost(this: Datagram_<'_, '_>, error: &Obj) -> PyResult<()> {
    let py = this.py();
    if this.lifecycle.is_over() {
        return Ok(());
    }
    let told = match this.protocol.get(py) {
        Some(protocol) => {
            let method = intern!(py, "connection_lost");
            tell(this, &protocol, method, Some(error)).map(drop)
        }
        None => Ok(()),
    };
    this.lifecycle.state.set(State::Lost);
    this.write.discard();
    drop((this.protocol.take(), this.context.take()));
    told.and(close_socket_if_idle(this))
}

/// Close the descriptor once the endpoint is lost and the kernel is done with it.
/// A completion that waits to be handed out is no reason to keep it open: the code behind
/// `connection_lost` may bind the address again at once.
pub(super) fn close_socket_if_idle(this: Datagram_<'_, '_>) -> PyResult<()> {
    if !this.lifecycle.is_over() {
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
    close_socket(this)
}

fn close_socket(this: Datagram_<'_, '_>) -> PyResult<()> {
    read::end_trains(this);
    if let Some(socket) = this.socket.take() {
        let py = this.py();
        socket.bind(py).call_method0(intern!(py, "close"))?;
    }
    Ok(())
}

/// Let go of an endpoint that is paused and sends nothing: as of asyncio's, whose selector does not hold it then, who
/// forgets it has it collected.
pub(super) fn rest_if_idle(this: Datagram_<'_, '_>) -> PyResult<()> {
    let rests = this.lifecycle.state.get() == State::Open
        && this.read.is_paused()
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

/// Have the loop hold on to an endpoint that has rested: a poll is about to begin.
pub(super) fn ensure_registered(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.registered.get() {
        return Ok(());
    }
    let core = this.core(this.py())?;
    let (token, fd) = (this.token.get(), this.socket.original_fd());
    let handler = super::handler(this);
    this.token
        .set(core.get().wake_transport(handler, token, fd)?);
    this.registered.set(true);
    Ok(())
}

/// The loop was closed under the transport.
pub(super) fn abandoned(this: Datagram_<'_, '_>) {
    this.read.armed().set(Armed::Nothing);
    this.write.armed().set(Armed::Nothing);
    this.write.discard();
    if this.lifecycle.is_over()
        && let Err(error) = close_socket(this)
    {
        error.write_unraisable(this.py(), None);
    }
}

/// `__del__`: nobody holds the transport, and it was never closed.
pub(super) fn finalize(this: Datagram_<'_, '_>) {
    if !this.socket.is_some() {
        return;
    }
    // The warning shows the transport as it is: open.
    let warned = shared::warn_unclosed(this);
    if let Ok(core) = this.core(this.py()) {
        core.get()
            .try_release_socket(this.token.get(), this.socket.original_fd());
    }
    for result in [warned, close_socket(this)] {
        if let Err(error) = result {
            error.write_unraisable(this.py(), Some(&this.object()));
        }
    }
}
