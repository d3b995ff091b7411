//! A listening socket: from readiness to transports.
//!
//! Owns: the poll of one listener. Called by: the loop's `_start_serving` and `_stop_serving`, and
//! the turn. Bind and listen are done by the server.
//!
//! The listening socket may be shared with other processes and loops, so connections are taken only
//! by accept(2), in the turn that creates the transport: a loop that does not run takes none
//! (`op::PollBorrowed`). Accepting is native up to `connection_made`. Without free descriptors, or
//! memory for the poll, it pauses for a second as asyncio does. A TLS listener passes each connection to a Python callback
//! instead. Each connection is created in a copy of the context in which serving was started, like
//! asyncio's accepting task.

use ringloop::embed::sys::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use ringloop::embed::sys::libc;
use ringloop::embed::sys::platform;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};
use ringloop::embed::op::{PollBorrowed, PollMode, Request};
use ringloop::embed::sys::address::SockAddr;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::{file, path, socket};
use ringloop::embed::{Event, Key, Sink, Token};

use super::create::{self, Origin, Shape};
use crate::error;
use crate::event_loop::exceptions::{self, leaves_the_loop};
use crate::event_loop::{Completes, Handler, LoopCore};
use crate::ffi::{
    self, Definition, Fallible, ObjCell, Payload, Raise as _, SocketCell, This, imported, intern,
    members, payload,
};
use crate::limits;
use crate::transport::address;
use crate::transport::socket::wrapped;
use crate::transport::thread::Owner;

/// A listening socket being served.
pub struct Listener {
    owner: Owner,
    socket: SocketCell,
    /// The same for every connection.
    shape: Shape,
    factory: ObjCell,
    server: ObjCell,
    /// Callback for connected sockets instead of the factory (TLS).
    accepted: ObjCell,
    /// The context in which serving was started.
    context: ObjCell,
    /// Connections accepted per turn.
    accepts_per_turn: usize,
    token: Cell<Token>,
    armed: Cell<Option<Key>>,
    stopped: Cell<bool>,
}

type Listener_<'a, 'py> = This<'a, 'py, Listener>;

impl Payload for Listener {
    const NAME: &'static CStr = c"ringloop._native.Listener";
    const DOC: &'static CStr = c"A listening socket that is being served.";
    payload!(Listener; define define;
        visit owner, socket, factory, server, accepted, context;
        clear factory, server, accepted, context);
}

fn define(type_: &mut Definition<Listener>) {
    members!(type_, Listener;
        start() => start, "Accept connections.";
        resume() => resume, "Accept connections again; where the kernel lacks memory, a little later.";
        stop() => stop, "Accept no more.";
    );
}

/// Make a listener; it accepts after `start()`. With `accepted`, sockets go there instead of to a protocol of the factory.
#[pyfunction]
pub(super) fn make_listener<'py>(
    loop_: &Bound<'py, LoopCore>,
    sock: &Bound<'py, PyAny>,
    factory: &Bound<'py, PyAny>,
    server: &Bound<'py, PyAny>,
    accepted: &Bound<'py, PyAny>,
    backlog: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let py = loop_.py();
    let given = |object: &Bound<'py, PyAny>| {
        ObjCell::new((!object.is_none()).then(|| object.clone().into()))
    };
    let number = |name: &Bound<'py, PyString>| {
        sock.getattr(name)?.call_method0(intern!(py, "__index__"))?.extract()
    };
    let listener = Listener {
        owner: Owner::new(loop_),
        socket: SocketCell::new(sock)?,
        shape: Shape {
            family: number(intern!(py, "family"))?,
            kind: number(intern!(py, "type"))?,
            proto: number(intern!(py, "proto"))?,
        },
        factory: given(factory),
        server: given(server),
        accepted: given(accepted),
        context: ObjCell::new(Some(ffi::context_copy_current(py)?)),
        // As in asyncio, the backlog is the measure of expected concurrent connections.
        accepts_per_turn: backlog.saturating_add(1),
        token: Cell::new(Token(0)),
        armed: Cell::new(None),
        stopped: Cell::new(false),
    };
    Listener::native().instantiate(py, listener)
}

/// # Errors
/// `ENOMEM`, `ENOSPC` if the kernel cannot watch the socket, as from asyncio's `add_reader`.
fn start(this: Listener_<'_, '_>) -> PyResult<()> {
    let Err(refusal) = poll(this)? else {
        return Ok(());
    };
    rest(this, this.owner.core(this.py())?.get())?;
    Err(error::from_io(&refusal))
}

/// As [`start`], for a listener that has served: its connections wait, and no caller starts it again.
fn resume(this: Listener_<'_, '_>) -> PyResult<()> {
    match poll(this)? {
        Ok(()) => Ok(()),
        Err(refusal) => unpolled(this, &refusal),
    }
}

/// Begins to poll. The inner error is the kernel's refusal.
fn poll(this: Listener_<'_, '_>) -> PyResult<io::Result<()>> {
    if this.stopped.get() || this.armed.get().is_some() {
        return Ok(Ok(()));
    }
    let loop_ = this.owner.core(this.py())?;
    let core = loop_.get();
    let handler = Handler::of(this);
    let token = core.handlers.with(|slab| slab.register(handler))??;
    this.token.set(token);
    arm(this, core)
}

fn arm(this: Listener_<'_, '_>, core: &LoopCore) -> PyResult<io::Result<()>> {
    let fd = this.socket.fd(this.py());
    let poll =
        Request::PollBorrowed(PollBorrowed { fd, interest: Interest::READ, mode: PollMode::Edge });
    let sink = Sink::Handler(this.token.get());
    Ok(core.submit_poll(poll, sink)?.map(|key| this.armed.set(Some(key))))
}

fn stop(this: Listener_<'_, '_>) -> PyResult<()> {
    this.stopped.set(true);
    let loop_ = this.owner.core(this.py())?;
    let core = loop_.get();
    if core.is_closed() {
        return Ok(());
    }
    let rested = rest(this, core);
    this.clear();
    rested
}

/// Stops the poll, so that the listener may be closed at once.
fn disarm(this: Listener_<'_, '_>, core: &LoopCore) -> PyResult<()> {
    let Some(key) = this.armed.take() else {
        return Ok(());
    };
    if core.engine.is_of_another_process() {
        return Ok(());
    }
    core.forget_poll(key)?;
    match descriptor_to_release(this, core)? {
        Some(fd) => core.engine.driver(|driver| driver.release(fd)),
        None => Ok(()),
    }
}

/// Stops polling until the next `start`.
fn rest(this: Listener_<'_, '_>, core: &LoopCore) -> PyResult<()> {
    drop(core.handlers.with(|slab| slab.remove(this.token.get()))?);
    disarm(this, core)
}

/// The descriptor about to be closed, or already closed by its owner, unless it is another's by
/// now.
fn descriptor_to_release(this: Listener_<'_, '_>, core: &LoopCore) -> PyResult<Option<RawFd>> {
    let fd = this.socket.fd(this.py());
    if fd >= 0 {
        return Ok(Some(fd));
    }
    let fd = this.socket.original_fd();
    Ok((!core.is_descriptor_used(fd)?).then_some(fd))
}

impl Completes for Listener {
    /// A completion of the poll: accepts pending connections.
    fn completed(this: Listener_<'_, '_>, event: Event) -> PyResult<()> {
        let completion = event.completion;
        if !completion.more {
            this.armed.set(None);
        }
        match completion.result {
            0.. => accept(this),
            error if error == -libc::ECANCELED => Ok(()),
            error => refused(this, -error),
        }
    }
}

/// Accepts until there are none. Those beyond the budget, or after an interrupt, are left for the
/// next turn.
fn accept(this: Listener_<'_, '_>) -> PyResult<()> {
    let mut taken = Ok(());
    // Told once: nothing but another process with the same socket changes it meanwhile.
    let waits = !file::is_nonblocking(this.socket.fd(this.py())).unwrap_or(false);
    for _ in 0..this.accepts_per_turn {
        if this.stopped.get() {
            return taken;
        }
        let fd = this.socket.fd(this.py());
        if fd < 0 {
            // The owner has closed the listening socket; another process may still have it open.
            return stop(this);
        }
        if waits && socket::accept_waits(fd).unwrap_or(false) {
            return taken;
        }
        match socket::accept_from(fd) {
            Ok((connection, peer)) => {
                this.owner.core(this.py())?.get().meters.accepted.add(1);
                taken = accepted(this, connection, &peer);
            }
            Err(error) => match error.raw_os_error().unwrap_or_default() {
                // Another process may have accepted it.
                libc::EAGAIN => return Ok(()),
                // The peer left before it was accepted.
                libc::EINTR | libc::ECONNABORTED => {}
                errno => return refused(this, errno),
            },
        }
        if taken.is_err() {
            break;
        }
    }
    taken.and(rearm_poll(this))
}

/// Requests another notification about pending connections.
fn rearm_poll(this: Listener_<'_, '_>) -> PyResult<()> {
    if this.stopped.get() {
        return Ok(());
    }
    let loop_ = this.owner.core(this.py())?;
    let core = loop_.get();
    if let Some(key) = this.armed.take() {
        core.engine.driver(|driver| driver.forget(key))?;
    }
    match arm(this, core)? {
        Ok(()) => Ok(()),
        Err(refusal) => unpolled(this, &refusal),
    }
}

/// The kernel has not taken the poll.
fn unpolled(this: Listener_<'_, '_>, refusal: &io::Error) -> PyResult<()> {
    refused(this, refusal.raw_os_error().unwrap_or(libc::ENOMEM))
}

/// Accepting, or the poll before it, fails for a temporary or permanent reason.
fn refused(this: Listener_<'_, '_>, errno: i32) -> PyResult<()> {
    match errno {
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::ENOSPC => {
            back_off(this, "socket.accept() out of system resource", errno)
        }
        // The socket no longer accepts: it was closed under the listener, or shut down.
        libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP | libc::EFAULT => {
            failed(this, errno)
        }
        // accept(2) reports network or filter errors of a single connection.
        _ => back_off(this, "socket.accept() failed; trying again", errno),
    }
}

/// Creates the protocol and transport of a connection.
fn accepted(this: Listener_<'_, '_>, fd: OwnedFd, peer: &SockAddr) -> PyResult<()> {
    let py = this.py();
    let Some(context) = this.context.get(py) else {
        return Ok(()); // stopped
    };
    let context = ffi::context_copy(py, &context)?;
    ffi::context_enter(py, &context)?;
    let result = accepted_in_context(this, fd, peer);
    ffi::context_exit(py, &context)?;
    result
}

fn accepted_in_context(this: Listener_<'_, '_>, fd: OwnedFd, peer: &SockAddr) -> PyResult<()> {
    let py = this.py();
    let connection = match python_socket(this, fd) {
        Ok(connection) => connection,
        Err(error) => return report(this, error, None),
    };
    let logged = log_accepted(this, &connection, peer);
    let made = logged.and_then(|()| extra_of(&connection, peer)).and_then(|extra| {
        match this.accepted.get(py) {
            Some(callback) => callback.bind(py).call1((&connection, extra)).map(drop),
            None => connect(this, &connection, &extra),
        }
    });
    made.or_else(|error| report(this, error, Some(&connection)))
}

/// asyncio's line of debug mode.
fn log_accepted<'py>(
    this: Listener_<'_, 'py>,
    connection: &Bound<'py, PyAny>,
    peer: &SockAddr,
) -> PyResult<()> {
    let py = this.py();
    if !this.owner.core(py)?.get().debug() {
        return Ok(());
    }
    let (server, peer) = (this.server.get_or_none(py), address::to_python(py, peer)?);
    let text = ffi::new_str(py, "%r got a new connection from %r: %r")?;
    exceptions::log(intern!(py, "debug"), (text, server, peer.into_bound(py), connection), None)
}

/// The peer's name, which asyncio has from accept(2), too.
fn extra_of<'py>(connection: &Bound<'py, PyAny>, peer: &SockAddr) -> PyResult<Bound<'py, PyDict>> {
    let py = connection.py();
    let extra = ffi::new_dict(py)?;
    if address::knows(peer.family().into()) {
        extra.set_item(intern!(py, "peername"), address::to_python(py, peer)?.into_bound(py))?;
    }
    Ok(extra)
}

fn connect<'py>(
    this: Listener_<'_, 'py>,
    connection: &Bound<'py, PyAny>,
    extra: &Bound<'py, PyDict>,
) -> PyResult<()> {
    let py = this.py();
    let Some(factory) = this.factory.get(py) else {
        return Ok(());
    };
    let protocol = factory.bind(py).call0()?;
    let server = this.server.get(py);
    let server = server.as_ref().map(|server| server.bind(py));
    let loop_ = this.owner.core(this.py())?;
    let (extra, shape) = (Some(extra), Some(this.shape));
    let origin = Origin { waiter: None, extra, server, is_own: true, shape };
    create::make(&loop_, connection, &protocol, origin).map(drop)
}

/// The `socket.socket` of an accepted descriptor, without the system calls that would query its
/// family and type.
fn python_socket<'py>(this: Listener_<'_, 'py>, fd: OwnedFd) -> PyResult<Bound<'py, PyAny>> {
    let py = this.py();
    let class = imported!(py, PyType, "socket", "socket")?;
    let Shape { family, kind, proto } = this.shape;
    // Accepted non-blocking; by this flag, which is not kept, the object knows.
    let flag = if platform::HAS_SOCKET_FLAGS { platform::SOCK_NONBLOCK } else { 0 };
    let connection = class.call1((
        Fallible(family),
        Fallible(kind | flag),
        Fallible(proto),
        Fallible(fd.as_raw_fd()),
    ))?;
    // Now owned by the object.
    let _ = fd.into_raw_fd();
    if !platform::HAS_SOCKET_FLAGS {
        connection.call_method1(intern!(py, "setblocking"), (false,))?;
    }
    Ok(connection)
}

/// asyncio logs a failed connection setup only in debug mode; the socket is closed.
fn report(
    this: Listener_<'_, '_>,
    error: PyErr,
    connection: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = this.py();
    if let Some(connection) = connection {
        connection.call_method0(intern!(py, "close"))?;
    }
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let loop_ = this.owner.core(this.py())?;
    if !loop_.get().debug() {
        return Ok(());
    }
    let exception = error.into_value(py).into_bound(py);
    let message = "Error on transport creation for incoming connection";
    exceptions::report(&loop_, message, &exception, &[])
}

/// Out of descriptors or memory, or another temporary error: reports it, and retries in a second.
fn back_off(this: Listener_<'_, '_>, message: &str, errno: i32) -> PyResult<()> {
    let py = this.py();
    let loop_ = this.owner.core(this.py())?;
    rest(this, loop_.get())?;
    // First, because an exception of the handler may leave the loop.
    let again = this.object().getattr(intern!(py, "resume")).and_then(|resume| {
        let arguments = (Fallible(limits::ACCEPT_RETRY_SECONDS), resume);
        loop_.call_method1(intern!(py, "call_later"), arguments)
    });
    if again.is_err() {
        // Without memory for a timer, sooner.
        loop_.get().owe(this.object(), intern!(py, "resume"), None)?;
    }
    tell(this, message, errno)
}

/// An error that ends the listener, such as a socket closed under it.
fn failed(this: Listener_<'_, '_>, errno: i32) -> PyResult<()> {
    rest(this, this.owner.core(this.py())?.get())?;
    tell(this, "socket.accept() failed; the listener has stopped", errno)
}

fn tell(this: Listener_<'_, '_>, message: &str, errno: i32) -> PyResult<()> {
    let py = this.py();
    let error = error::from_io(&io::Error::from_raw_os_error(errno));
    let exception = error.into_value(py).into_bound(py);
    let socket = wrapped(&this.socket.get_or_none(py))?;
    let more = [(intern!(py, "socket"), &socket)];
    let loop_ = this.owner.core(this.py())?;
    exceptions::report(&loop_, message, &exception, &more)
}

/// Remove the file at `path`, unless it has another inode number by now: somebody else's is there. A native call,
/// because tools that watch Python's `os` for blocking calls exempt asyncio's own by name, but not ours.
#[pyfunction]
pub(super) fn remove_socket_file(path: &[u8], inode: u64) -> PyResult<()> {
    let path = CString::new(path)
        .map_err(|_| PyValueError::raise("embedded null byte in the path of a socket"))?;
    let mut found = path::empty_metadata();
    let removed = path::metadata(libc::AT_FDCWD, &path, 0, &mut found).and_then(|()| {
        if found.stx_ino == inode { path::unlink(libc::AT_FDCWD, &path, 0) } else { Ok(()) }
    });
    removed.map_err(|error| error::from_io(&error))
}
