//! The Python surface towards the lower transport: `asyncio.BufferedProtocol`.
//!
//! Called by: any transport; ours pass bytes natively instead ([`RECEIVER`]). Arguments are checked
//! here, and each event goes where the state of the connection wants it; the parts do the work.

use pyo3::exceptions::{PyAssertionError, PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyMemoryView};

use super::state::{AppState, State, Tls, TlsProtocol, cancel};
use super::{handshake, incoming, lower, outgoing, shutdown};
use crate::event_loop::exceptions::leaves_the_loop;
use crate::ffi::{self, Argument, Definition, Obj, Payload as _, Raise as _, intern, members};
use crate::limits;
use crate::stream::NativeReceiver;
use crate::transport::base::log_debug;

/// How our own transports pass bytes to this protocol.
pub(super) static RECEIVER: NativeReceiver = NativeReceiver {
    take: |protocol, bytes| {
        TlsProtocol::native().get(protocol).map_or(Ok(None), |this| incoming::take(this, bytes))
    },
    taken: |protocol, held| TlsProtocol::native().with(protocol, |this| taken(this, held)),
};

pub(super) fn define(type_: &mut Definition<TlsProtocol>) {
    members!(type_, TlsProtocol;
        connection_made(transport) => connection_made, "Begin the handshake over this transport.";
        connection_lost(exc) => connection_lost, "The lower transport is gone.";
        get_buffer(sizehint) => get_buffer, "Return where to write ciphertext.";
        buffer_updated(nbytes) => buffer_updated, "Take ciphertext out of the buffer.";
        eof_received() => |this| Ok::<_, PyErr>(eof_received(this)?.then_some(true)), "The lower transport has ended its stream.";
        pause_writing() => pause_writing, "The lower transport is full.";
        resume_writing() => resume_writing, "The lower transport takes bytes again.";
        _check_handshake_timeout() => handshake::check_timeout, "End a handshake that takes too long.";
        _check_shutdown_timeout() => shutdown::check_timeout, "End a shutdown that takes too long.";
        _feed(data) => feed, "Take ciphertext that was received before the handshake began.";
        _do_read() => shutdown::do_read, "Deliver what can be decrypted.";
        _close_lower() => shutdown::close_lower, "Close the lower transport.";
        _wake_waiter(exc) => handshake::wake_again, "Resolve the waiter.";
        _resume() => shutdown::resumed, "Go on after a pause of the user's.";
        get _loop => |this| this.owner.loop_(this.py()), "The loop.";
        get _transport => |this| this.lower.get_or_none(this.py()), "The lower transport; None before connection_made() and after connection_lost().";
        get _app_transport => |this| this.app_transport.get_or_none(this.py()), "The user's transport; None once the connection is lost.";
        get _app_protocol => |this| this.app.get_or_none(this.py()), "The user's protocol; None once the connection is lost.";
        get _sslobj => |this| this.engine.object(this.py()), "The ssl.SSLObject.";
        get _sslcontext => ssl_context, "The ssl.SSLContext it was made with.";
        get _libssl => |this| this.engine.is_direct(), "Whether records go straight to libssl.";
    );
}

fn connection_made(this: Tls<'_, '_>, transport: Argument<'_, '_>) -> PyResult<()> {
    lower::attach(this, &transport, &RECEIVER);
    handshake::start(this)
}

/// The lower transport is closed.
fn connection_lost(this: Tls<'_, '_>, error: Argument<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let error = &Obj::from_borrowed(error);
    this.outgoing.backlog.clear();
    drop(this.engine.take_output(py));
    this.outgoing.lost_writes.count();
    shutdown::mark_closed(this);
    let told = matches!(this.app_state.get(), AppState::Made | AppState::Eof);
    if this.state.get() != State::DoHandshake && told {
        this.app_state.set(AppState::Lost);
        if let Some(app) = this.app.get(py) {
            let (app, context) = (app.bind(py).as_borrowed(), ffi::context_copy_current(py));
            let (method, error) = (intern!(py, "connection_lost"), Some(error.clone_ref(py)));
            this.core(py)?.get().call_method_soon(app, method, error, context)?;
        }
    }
    this.set_state(State::Unwrapped)?;
    drop((
        this.lower.take(),
        this.app_transport.take(),
        this.app.take(),
        this.incoming.buffer.take(),
    ));
    let error = Some(error).filter(|error| !error.bind(py).is_none());
    let woken = handshake::wake_waiter(this, error);
    let cancelled = cancel(py, &this.timing.shutdown_timer);
    woken.and(cancelled).and(cancel(py, &this.timing.handshake_timer))
}

/// Continues with what was taken in.
#[inline]
fn taken(this: Tls<'_, '_>, held: Option<Obj>) -> PyResult<()> {
    if let Some(held) = held {
        this.engine.feed(this.py(), &held)?;
    }
    let done = match this.state.get() {
        State::Wrapped => shutdown::read(this),
        State::DoHandshake => handshake::go_on(this),
        State::Flushing => shutdown::flush(this),
        State::Shutdown => shutdown::go_on(this),
        State::Unwrapped => Ok(()),
    };
    shutdown::or_again(this, done)
}

/// The lower transport has received EOF; `true` keeps its other direction open.
fn eof_received(this: Tls<'_, '_>) -> PyResult<bool> {
    this.incoming.eof.set(true);
    let ended = lower_ended(this);
    if let Err(error) = &ended
        && leaves_the_loop(this.py(), error)
    {
        return shutdown::or_again(this, ended.map(drop)).map(|()| false);
    }
    match ended {
        Err(error) if error.is_instance_of::<PyException>(this.py()) => {
            lower::call(this, intern!(this.py(), "close"))?;
            Err(error)
        }
        result => result,
    }
}

fn lower_ended(this: Tls<'_, '_>) -> PyResult<bool> {
    log_debug(this, "debug", "%r received EOF")?;
    match this.state.get() {
        State::DoHandshake => handshake::cut_off(this)?,
        State::Wrapped => {
            this.set_state(State::Flushing)?;
            if this.incoming.is_paused() {
                // The rest is delivered once the application resumes.
                return Ok(true);
            }
            shutdown::flush(this)?;
        }
        // Interrupted before: handle the end again.
        State::Flushing if !this.incoming.is_paused() => shutdown::flush(this)?,
        State::Flushing => {
            outgoing::encrypt(this)?;
            this.set_state(State::Shutdown)?;
            shutdown::go_on(this)?;
        }
        State::Shutdown => shutdown::go_on(this)?,
        State::Unwrapped => {}
    }
    Ok(false)
}

/// Other transports get memory of this connection, allocated on first request.
fn get_buffer<'py>(this: Tls<'_, 'py>, hint: Argument<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    let hint: isize = hint.extract()?;
    let wanted = match usize::try_from(hint) {
        Ok(hint @ 1..=limits::READ_CHUNK_MAX) => hint,
        _ => limits::READ_CHUNK_MAX,
    };
    if let Some(buffer) = this.incoming.buffer.get(py)
        && buffer.bind(py).len()? >= wanted
    {
        return Ok(buffer.into_bound(py));
    }
    let memory = PyByteArray::new_with(py, wanted, |_| Ok(()))?;
    let view = PyMemoryView::from(&memory)?.into_any();
    drop(this.incoming.buffer.replace(Some(view.clone().into())));
    Ok(view)
}

fn buffer_updated(this: Tls<'_, '_>, count: Argument<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let count: usize = count.extract()?;
    let Some(buffer) = this.incoming.buffer.get(py) else {
        return Err(PyTypeError::raise("buffer_updated() was called before get_buffer()"));
    };
    let held = ffi::with_bytes(buffer.bind(py).as_borrowed(), |bytes| {
        incoming::take(this, &bytes[..count.min(bytes.len())])
    })??;
    drop(buffer);
    taken(this, held)
}

fn feed(this: Tls<'_, '_>, data: Argument<'_, '_>) -> PyResult<()> {
    match ffi::with_bytes(data, |bytes| incoming::take(this, bytes))?? {
        Some(held) => this.engine.feed(this.py(), &held),
        None => Ok(()),
    }
}

fn pause_writing(this: Tls<'_, '_>) -> PyResult<()> {
    if this.outgoing.lower_paused.replace(true) {
        return Err(PyAssertionError::raise("writing is paused already"));
    }
    Ok(())
}

fn resume_writing(this: Tls<'_, '_>) -> PyResult<()> {
    if !this.outgoing.lower_paused.replace(false) {
        return Err(PyAssertionError::raise("writing is not paused"));
    }
    let done = outgoing::process(this);
    shutdown::or_again(this, done)
}

fn ssl_context<'py>(this: Tls<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    this.extra.get_or_none(py).get_item(intern!(py, "sslcontext"))
}
