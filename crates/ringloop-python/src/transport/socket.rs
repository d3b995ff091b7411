//! The socket of a stream or datagram endpoint: its registration with the loop, and its closing.
//!
//! Owns: [`LoopSocket`]. Called by: both, and user code (the members of [`define`]).
//!
//! The descriptor is closed once the last operation on it has ended: otherwise the kernel would
//! neither complete a pending receive nor send FIN. An undelivered completion does not keep it
//! open: the code after `connection_lost` may block until the other end sees the close, or bind the
//! address again.

use ringloop::embed::sys::fd::RawFd;
use std::cell::Cell;
use std::ops::Deref;

use pyo3::exceptions::{PyOSError, PySystemError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use ringloop::embed::op::Request;
use ringloop::embed::sys::address::SockAddr;
use ringloop::embed::{Key, Sink, Token, sys};

use super::address;
use super::base::{self, Endpoint, State};
use super::flow::Writable;
use super::gather::Gathering;
use crate::event_loop::{Handler, LoopCore, handlers};
use crate::ffi::{
    self, Definition, Fallible, IntoObject as _, Obj, Raise as _, SocketCell, This, imported,
    intern, members,
};

/// A `socket.socket`, empty once closed, and the loop's state for it.
pub(crate) struct LoopSocket {
    socket: SocketCell,
    /// Its slot among the loop's handlers, which keep the transport alive while operations are in
    /// flight or bytes may still arrive.
    token: Cell<Token>,
    /// It has a slot. Not while it rests: see [`rest_if_idle`].
    registered: Cell<bool>,
    /// It is on the loop's list of transports to flush at the end of the turn.
    flushes: Cell<bool>,
    pub gathering: Gathering,
}

impl LoopSocket {
    pub fn new(socket: SocketCell, gathering: Gathering) -> Self {
        Self {
            socket,
            token: Cell::new(Token(0)),
            registered: Cell::new(false),
            flushes: Cell::new(false),
            gathering,
        }
    }

    /// The turn ended, and the next flush may be requested.
    pub fn turn_ended(&self) {
        self.flushes.set(false);
    }

    /// Destination of an operation's completions.
    fn sink(&self, role: u8) -> Sink {
        Sink::Handler(handlers::with_role(self.token.get(), role))
    }
}

impl Deref for LoopSocket {
    type Target = SocketCell;

    #[inline]
    fn deref(&self) -> &SocketCell {
        &self.socket
    }
}

/// A multishot operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Armed {
    #[default]
    Nothing,
    Running(Key),
    /// Cancelled; its last completion is pending.
    Stopping(Key),
}

impl Armed {
    pub fn key(self) -> Option<Key> {
        match self {
            Self::Running(key) | Self::Stopping(key) => Some(key),
            Self::Nothing => None,
        }
    }
}

/// What the application wants of reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    /// `connection_made` has not run yet.
    #[default]
    NotStarted,
    Read,
    Pause,
    /// Permanently: after the end of the stream, or closed.
    Stop,
}

/// A transport of a socket.
pub(crate) trait SocketTransport: Writable {
    fn socket(&self) -> &LoopSocket;
    /// The operations whose last completion is pending.
    fn operations(&self) -> [Option<Key>; 2];
    /// Whether nothing is read or sent until its owner acts.
    fn is_idle(&self) -> bool;
    /// Starts reading, after `connection_made`.
    fn start_reading(this: This<'_, '_, Self>) -> PyResult<()>;
    /// Stops reading permanently.
    fn stop_reading(this: This<'_, '_, Self>) -> PyResult<()>;
    /// Drops unsent data.
    fn discard(this: This<'_, '_, Self>) -> PyResult<()>;
    /// Sends what was gathered.
    fn send_gathered(this: This<'_, '_, Self>) -> PyResult<()>;
    fn before_close(_this: This<'_, '_, Self>) {}
}

/// What the [`Endpoint`]s of sockets have in common.
macro_rules! socket_endpoint {
    () => {
        fn base(&self) -> &$crate::transport::base::Base {
            &self.base
        }
        fn close(this: $crate::ffi::This<'_, '_, Self>) -> ::pyo3::PyResult<()> {
            $crate::transport::socket::close(this)
        }
        fn force_close(
            this: $crate::ffi::This<'_, '_, Self>,
            error: Option<$crate::ffi::Obj>,
        ) -> ::pyo3::PyResult<()> {
            $crate::transport::socket::force_close(this, error)
        }
        fn is_unclosed(&self) -> bool {
            self.socket.is_some()
        }
    };
}
pub(crate) use socket_endpoint;

/// Lists the members of socket transports.
pub(crate) fn define<T: SocketTransport>(type_: &mut Definition<T>) {
    members!(type_, T: SocketTransport;
        _start_reading() => T::start_reading, "Begin to read, after connection_made.";
        _start_reading_soon() => start_reading_soon, "Begin to read in the next pass.";
        _send_gathered() => send_gathered, "Send what waits for the end of the turn.";
        _write_at_once() => write_at_once, "Send what waits, and have nothing wait any more.";
        get _sock => socket, "The socket; None once closed.";
        get _sock_fd => socket_fd, "The socket's descriptor.";
    );
}

fn start_reading_soon<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    base::call_soon(this, intern!(this.py(), "_start_reading"))
}

fn send_gathered<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    if this.base().is_elsewhere() {
        return Ok(());
    }
    T::send_gathered(this)
}

/// The application gets the descriptor: later writes are sent at once.
fn write_at_once<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    this.socket().gathering.refuse();
    send_gathered(this)
}

fn socket<'py, T: SocketTransport>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    write_at_once(this)?;
    Ok(this.socket().get_or_none(this.py()))
}

fn socket_fd<'py, T: SocketTransport>(this: This<'_, 'py, T>) -> PyResult<Bound<'py, PyAny>> {
    write_at_once(this)?;
    this.socket().original_fd().into_object(this.py())
}

/// The `_extra` dictionary without the socket: names, and the caller's entries.
pub(crate) fn extra<'py>(
    socket: &Bound<'py, PyAny>,
    known: Option<&Bound<'py, PyDict>>,
    fd: RawFd,
) -> PyResult<Bound<'py, PyDict>> {
    let py = socket.py();
    let extra = base::copy_extra(py, known)?;
    let is_plain = ffi::is_plain_socket(socket);
    let is_native = |address: &SockAddr| is_plain && address::knows(address.family().into());
    let name = match sys::socket::local_addr(fd) {
        Ok(address) if is_native(&address) => address::to_python(py, &address)?.into_bound(py),
        _ => match socket.call_method0(intern!(py, "getsockname")) {
            Err(error) if error.is_instance_of::<PyOSError>(py) => py.None().into_bound(py),
            name => name?,
        },
    };
    extra.set_item(intern!(py, "sockname"), name)?;
    let peername = intern!(py, "peername");
    if !extra.contains(peername)? {
        let name = match sys::socket::peer_addr(fd) {
            Ok(address) if is_native(&address) => {
                Some(address::to_python(py, &address)?.into_bound(py))
            }
            Ok(_) => socket.call_method0(intern!(py, "getpeername")).ok(),
            Err(_) => None,
        };
        extra.set_item(peername, name)?;
    }
    Ok(extra)
}

/// Makes the Python object of a transport, with its `_extra`.
pub(crate) fn instantiate<'py, T: SocketTransport>(
    transport: T,
    socket: &Bound<'py, PyAny>,
    extra: &Bound<'py, PyDict>,
    gathers: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = socket.py();
    let transport = T::native().instantiate(py, transport)?;
    show_socket(extra, &transport, socket, gathers)?;
    transport.setattr(intern!(py, "_extra"), extra)?;
    Ok(transport)
}

/// The state of a new transport.
pub(crate) fn new_one<'a, 'py, T: Endpoint>(
    transport: &'a Bound<'py, PyAny>,
) -> PyResult<This<'a, 'py, T>> {
    T::native()
        .get(transport)
        .ok_or_else(|| PySystemError::raise("a new transport has another type"))
}

/// Registers a new transport, and schedules `connection_made`, in `context`, the first read and the
/// waiter, in this order.
pub(crate) fn begin<T: SocketTransport>(
    this: This<'_, '_, T>,
    loop_: &Bound<'_, LoopCore>,
    protocol: &Bound<'_, PyAny>,
    waiter: Option<&Bound<'_, PyAny>>,
    context: Obj,
) -> PyResult<()> {
    let socket = this.socket();
    let (core, fd) = (loop_.get(), socket.original_fd());
    socket.token.set(core.add_transport(Handler::of(this), fd)?);
    socket.registered.set(true);
    let scheduled = schedule(loop_, protocol, &this.object(), waiter, context);
    if scheduled.is_err() {
        // A protocol without `connection_made` never gets the transport: drop it.
        core.release_handler(socket.token.get(), fd)?;
    }
    scheduled
}

/// Schedules `connection_made`, in `context`, `_start_reading` and the waiter.
fn schedule(
    loop_: &Bound<'_, LoopCore>,
    protocol: &Bound<'_, PyAny>,
    transport: &Bound<'_, PyAny>,
    waiter: Option<&Bound<'_, PyAny>>,
    context: Obj,
) -> PyResult<()> {
    let py = loop_.py();
    let core = loop_.get();
    let made = protocol.getattr(intern!(py, "connection_made"))?;
    core.call_soon_step(made.into(), Some(transport.clone().into()), context)?;
    let Some(waiter) = waiter else {
        let start = transport.getattr(intern!(py, "_start_reading"))?;
        return core.call_soon_step(start.into(), None, ffi::context_copy_current(py)?);
    };
    base::wake_soon(loop_, waiter)?;
    // One pass later, after the task that the waiter wakes: it has its transport before the
    // protocol has bytes, as with a selector, which only queues its results.
    let later = transport.getattr(intern!(py, "_start_reading_soon"))?;
    core.call_soon_step(later.into(), None, ffi::context_copy_current(py)?)
}

/// Puts the socket into `extra`, wrapped as in asyncio; if the transport gathers writes, so that
/// using the socket is noticed: see [`super::gather`].
fn show_socket(
    extra: &Bound<'_, PyDict>,
    transport: &Bound<'_, PyAny>,
    socket: &Bound<'_, PyAny>,
    gathers: bool,
) -> PyResult<()> {
    let py = socket.py();
    let inside = if gathers {
        imported!(py, PyType, "ringloop._writes", "ShownSocket")?.call1((socket, transport))?
    } else {
        socket.clone()
    };
    extra.set_item(intern!(py, "socket"), wrapped(&inside)?)
}

/// An `asyncio.trsock.TransportSocket`.
pub(crate) fn wrapped<'py>(socket: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    imported!(socket.py(), PyType, "asyncio.trsock", "TransportSocket")?.call1((socket,))
}

/// Registers a resting transport again: an operation is about to start.
pub(crate) fn ensure_registered<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    let socket = this.socket();
    if socket.registered.get() {
        return Ok(());
    }
    let core = this.base().core(this.py())?;
    let (last, fd) = (socket.token.get(), socket.original_fd());
    let token = core.get().wake_transport(Handler::of(this), last, fd)?;
    socket.token.set(token);
    socket.registered.set(true);
    Ok(())
}

/// Submits an operation, whose completions come with `role`.
pub(crate) fn submit<T: SocketTransport>(
    this: This<'_, '_, T>,
    role: u8,
    request: Request,
) -> PyResult<Key> {
    ensure_registered(this)?;
    let sink = this.socket().sink(role);
    this.base().core(this.py())?.get().submit(request, sink)
}

/// Makes the loop flush at the end of the turn; fails if there is no memory for that.
pub(crate) fn flush_later<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    if this.socket().flushes.get() {
        return Ok(());
    }
    this.base().core(this.py())?.get().flush_later(Handler::of(this))?;
    this.socket().flushes.set(true);
    Ok(())
}

/// Releases a transport that only its owner can still use: nothing is read or sent. If it is
/// unreferenced, it is collected and its descriptor closed, like a transport of asyncio, which its
/// selector does not reference then either.
pub(crate) fn rest_if_idle<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    let socket = this.socket();
    let rests = this.base().state.get() == State::Open && this.is_idle() && !in_flight(this);
    if !rests || !socket.registered.replace(false) {
        return Ok(());
    }
    let py = this.py();
    let core = this.base().core(py)?;
    // Its descriptor stays recorded while the object lives.
    core.getattr(intern!(py, "_transports"))?
        .set_item(Fallible(socket.original_fd()), this.object())?;
    core.get().rest_transport(socket.token.get())
}

fn in_flight<T: SocketTransport>(this: This<'_, '_, T>) -> bool {
    this.operations().iter().any(Option::is_some)
}

/// Closes once everything written is sent.
pub(crate) fn close<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    if this.base().is_closing() {
        return Ok(());
    }
    base::leave_to_parent(this)?;
    this.base().state.set(State::Closing);
    T::stop_reading(this)?;
    let sent = T::send_gathered(this);
    if this.size() > 0 {
        return sent;
    }
    sent.and(lose(this, None))
}

/// Closes now; unsent data is dropped.
pub(crate) fn force_close<T: SocketTransport>(
    this: This<'_, '_, T>,
    error: Option<Obj>,
) -> PyResult<()> {
    if this.base().is_lost() {
        return Ok(());
    }
    base::leave_to_parent(this)?;
    let discarded = T::discard(this);
    if !this.base().is_closing() {
        this.base().state.set(State::Closing);
        T::stop_reading(this)?;
    }
    discarded.and(lose(this, error))
}

/// Everything is sent or dropped: schedules `connection_lost`.
pub(crate) fn lose<T: SocketTransport>(this: This<'_, '_, T>, error: Option<Obj>) -> PyResult<()> {
    if !this.base().is_lost() {
        this.base().lost_writes.count();
    }
    base::lose(this, error)
}

/// Closes the descriptor once the connection is lost and the kernel is done with it.
pub(crate) fn close_if_lost<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    if !this.base().is_over() {
        return Ok(());
    }
    let socket = this.socket();
    let (token, fd) = (socket.token.get(), socket.original_fd());
    let core = this.base().core(this.py())?;
    if !in_flight(this) {
        core.get().release_handler(token, fd)?;
    } else if socket.is_some() && has_ended(this, core.get())? {
        core.get().release_socket(token, fd)?;
    } else {
        return Ok(());
    }
    close_socket(this)
}

/// Whether all operations have ended in the kernel.
fn has_ended<T: SocketTransport>(this: This<'_, '_, T>, core: &LoopCore) -> PyResult<bool> {
    for key in this.operations().into_iter().flatten() {
        if !core.engine.has_ended(key)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Stops an operation; its last completion is still to come.
pub(crate) fn disarm<T: SocketTransport>(
    this: This<'_, '_, T>,
    armed: &Cell<Armed>,
) -> PyResult<()> {
    if let Armed::Running(key) = armed.get() {
        this.base().driver(this.py(), |driver| driver.cancel(key))?;
        armed.set(Armed::Stopping(key));
    }
    Ok(())
}

fn close_socket<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    T::before_close(this);
    if let Some(socket) = this.socket().take() {
        let py = this.py();
        socket.bind(py).call_method0(intern!(py, "close"))?;
    }
    Ok(())
}

/// The loop was closed under the transport, and its operations are gone.
pub(crate) fn abandoned<T: SocketTransport>(this: This<'_, '_, T>) {
    if this.base().is_over()
        && let Err(error) = close_socket(this)
    {
        error.write_unraisable(this.py(), None);
    }
}

/// The finaliser closes the socket.
pub(crate) fn close_unclosed<T: SocketTransport>(this: This<'_, '_, T>) -> PyResult<()> {
    if let Ok(core) = this.base().core(this.py()) {
        let socket = this.socket();
        core.get().try_release_socket(socket.token.get(), socket.original_fd());
    }
    close_socket(this)
}

/// The state of a transport of a socket, as asyncio's `__repr__` writes it, with our class's name.
pub(crate) fn repr<'py, T: SocketTransport>(
    this: This<'_, 'py, T>,
    polls_read: bool,
    polls_write: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let is_closed = !this.socket().is_some();
    let state = match (is_closed, this.base().appears_closing()) {
        (true, _) => " closed",
        (false, true) => " closing",
        (false, false) => "",
    };
    let traffic = if is_closed || this.base().core(this.py())?.get().is_closed() {
        String::new()
    } else {
        let word = |polls: bool| if polls { "polling" } else { "idle" };
        let (read, write) = (word(polls_read), word(polls_write));
        format!(" read={read} write=<{write}, bufsize={}>", this.size())
    };
    let name = this.object().get_type().name()?;
    let fd = this.socket().original_fd();
    format!("<{name}{state} fd={fd}{traffic}>").into_object(this.py())
}
