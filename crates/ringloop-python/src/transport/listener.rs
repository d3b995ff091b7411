//! A listening socket: from readiness to transports.
//!
//! Owns: the poll of one listener. Called by: the loop's `_start_serving` and `_stop_serving`, and the
//! turn. Never does: bind or listen; that is the server's.
//!
//! The listener may be other processes' and other loops' as well, so nothing takes a connection but accept(2) in the
//! turn that makes it a transport: a loop that does not run takes none (`op::PollListener`).
//! Accepting is native up to `connection_made`. Out of descriptors, it pauses for a second
//! as asyncio does. A TLS listener hands each connection to a Python callback instead. Each connection
//! is made in a copy of the context in which serving was started, as asyncio's accepting task is.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};
use ringloop::embed::op::{PollListener, Request};
use ringloop::embed::sys::socket;
use ringloop::embed::{Event, Key, Sink, Token};

use super::create;
use crate::error;
use crate::event_loop::exceptions::{self, leaves_the_loop};
use crate::event_loop::{Completes, Handler, LoopCore};
use crate::ffi::{
    self, Definition, Fallible, Native, ObjCell, Payload, SocketCell, This, Visited, Visitor,
    intern, members,
};
use crate::limits;

/// One listening socket that is being served.
pub struct Listener {
    loop_: ObjCell,
    socket: SocketCell,
    /// `(family, type, proto)` of every connection.
    shape: (i32, i32, i32),
    factory: ObjCell,
    server: ObjCell,
    /// Takes a connected socket in place of the factory (TLS).
    accepted: ObjCell,
    /// What was current when serving was started.
    context: ObjCell,
    /// Connections that one turn takes at most.
    accepts_per_turn: usize,
    token: Cell<Token>,
    armed: Cell<Option<Key>>,
    stopped: Cell<bool>,
}

type Listener_<'a, 'py> = This<'a, 'py, Listener>;

impl Payload for Listener {
    const NAME: &'static CStr = c"ringloop._native.Listener";
    const DOC: &'static CStr = c"A listening socket that is being served.";

    fn native() -> &'static Native<Self> {
        static TYPE: Native<Listener> = Native::new();
        &TYPE
    }

    fn define(type_: &mut Definition<Self>) {
        members!(type_, Listener;
            start() => start, "Accept connections.";
            stop() => stop, "Accept no more.";
        );
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.loop_.visit(visitor)?;
        self.socket.visit(visitor)?;
        self.factory.visit(visitor)?;
        self.server.visit(visitor)?;
        self.accepted.visit(visitor)?;
        self.context.visit(visitor)
    }

    fn clear(&self) {
        drop((
            self.factory.take(),
            self.server.take(),
            self.accepted.take(),
            self.context.take(),
        ));
    }
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
        sock.getattr(name)?
            .call_method0(intern!(py, "__index__"))?
            .extract()
    };
    let listener = Listener {
        loop_: ObjCell::new(Some(loop_.clone().into_any().into())),
        socket: SocketCell::new(sock)?,
        shape: (
            number(intern!(py, "family"))?,
            number(intern!(py, "type"))?,
            number(intern!(py, "proto"))?,
        ),
        factory: given(factory),
        server: given(server),
        accepted: given(accepted),
        context: ObjCell::new(Some(ffi::context_copy_current(py)?)),
        // As asyncio: whoever expects many connections at once says so by the backlog.
        accepts_per_turn: backlog.saturating_add(1),
        token: Cell::new(Token(0)),
        armed: Cell::new(None),
        stopped: Cell::new(false),
    };
    Listener::native().instantiate(py, listener)
}

fn start(this: Listener_<'_, '_>) -> PyResult<()> {
    if this.stopped.get() || this.armed.get().is_some() {
        return Ok(());
    }
    let loop_ = core(this)?;
    let core = loop_.get();
    let handler = Handler::of(this);
    let token = core.handlers.with(|slab| slab.register(handler))??;
    this.token.set(token);
    arm(this, core)
}

fn arm(this: Listener_<'_, '_>, core: &LoopCore) -> PyResult<()> {
    let poll = PollListener::new(this.socket.fd(this.py()), core.engine.kind()?, false);
    let poll = Request::PollListener(poll);
    let sink = Sink::Handler(this.token.get());
    let key = core.engine.driver(|driver| driver.submit(poll, sink))?;
    this.armed.set(Some(key));
    Ok(())
}

fn stop(this: Listener_<'_, '_>) -> PyResult<()> {
    this.stopped.set(true);
    let loop_ = core(this)?;
    let core = loop_.get();
    if core.is_closed() {
        return Ok(());
    }
    let rested = rest(this, core);
    drop((
        this.factory.take(),
        this.server.take(),
        this.accepted.take(),
        this.context.take(),
    ));
    rested
}

/// Stop the poll, so that the listener may be closed at once.
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

/// Poll no more, until the next `start`.
fn rest(this: Listener_<'_, '_>, core: &LoopCore) -> PyResult<()> {
    drop(core.handlers.with(|slab| slab.remove(this.token.get()))?);
    disarm(this, core)
}

/// The number that is about to be closed, or that its owner has closed, unless it is another's by now.
fn descriptor_to_release(this: Listener_<'_, '_>, core: &LoopCore) -> PyResult<Option<RawFd>> {
    let fd = this.socket.fd(this.py());
    if fd >= 0 {
        return Ok(Some(fd));
    }
    let fd = this.socket.original_fd();
    Ok((!core.is_descriptor_used(fd)?).then_some(fd))
}

fn core<'py>(this: Listener_<'_, 'py>) -> PyResult<Bound<'py, LoopCore>> {
    Ok(this.loop_.get_or_none(this.py()).cast_into::<LoopCore>()?)
}

impl Completes for Listener {
    fn completed(this: Listener_<'_, '_>, event: Event) -> PyResult<()> {
        completed(this, event)
    }
}

/// One completion of the poll: take what waits.
fn completed(this: Listener_<'_, '_>, event: Event) -> PyResult<()> {
    let completion = event.completion;
    if !completion.more {
        this.armed.set(None);
    }
    match completion.result {
        0.. => accept(this),
        error if error == -libc::ECANCELED => Ok(()),
        error => failed(this, -error),
    }
}

/// Take connections until there are none. Those over the bound, and those behind an interrupt, are the next turn's.
fn accept(this: Listener_<'_, '_>) -> PyResult<()> {
    let mut taken = Ok(());
    for _ in 0..this.accepts_per_turn {
        if this.stopped.get() {
            return taken;
        }
        let fd = this.socket.fd(this.py());
        if fd < 0 {
            // Its owner has closed the listening socket; another process may hold the file.
            return stop(this);
        }
        match socket::accept_now(fd) {
            Ok(connection) => taken = accepted(this, connection),
            Err(error) => match error.raw_os_error().unwrap_or_default() {
                // Another process may have been first.
                libc::EAGAIN => return Ok(()),
                // The peer was gone before it could be accepted.
                libc::EINTR | libc::ECONNABORTED => {}
                errno => return refused(this, errno),
            },
        }
        if taken.is_err() {
            break;
        }
    }
    taken.and(look_again(this))
}

/// Be told again of connections that wait.
fn look_again(this: Listener_<'_, '_>) -> PyResult<()> {
    if this.stopped.get() {
        return Ok(());
    }
    let loop_ = core(this)?;
    let core = loop_.get();
    if let Some(key) = this.armed.take() {
        core.engine.driver(|driver| driver.forget(key))?;
    }
    arm(this, core)
}

/// Accepting fails for a reason that stays for a while, or for good.
fn refused(this: Listener_<'_, '_>, errno: i32) -> PyResult<()> {
    match errno {
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
            back_off(this, "socket.accept() out of system resource", errno)
        }
        // The socket accepts nothing any more: it was closed under the listener, or shut down.
        libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP | libc::EFAULT => {
            failed(this, errno)
        }
        // accept(2) passes on what the network or a filter had against one connection.
        _ => back_off(this, "socket.accept() failed; trying again", errno),
    }
}

/// A connection: make its protocol and its transport.
fn accepted(this: Listener_<'_, '_>, fd: OwnedFd) -> PyResult<()> {
    let py = this.py();
    let Some(context) = this.context.get(py) else {
        return Ok(()); // stopped
    };
    let context = ffi::context_copy(py, &context)?;
    ffi::context_enter(py, &context)?;
    let result = accepted_in_context(this, fd);
    ffi::context_exit(py, &context)?;
    result
}

fn accepted_in_context(this: Listener_<'_, '_>, fd: OwnedFd) -> PyResult<()> {
    let py = this.py();
    let connection = match python_socket(this, fd) {
        Ok(connection) => connection,
        Err(error) => return report(this, error, None),
    };
    let made = match this.accepted.get(py) {
        Some(callback) => callback.bind(py).call1((&connection,)).map(drop),
        None => connect(this, &connection),
    };
    made.or_else(|error| report(this, error, Some(&connection)))
}

fn connect(this: Listener_<'_, '_>, connection: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = this.py();
    let Some(factory) = this.factory.get(py) else {
        return Ok(());
    };
    let protocol = factory.bind(py).call0()?;
    let server = this.server.get(py);
    let server = server.as_ref().map(|server| server.bind(py));
    let loop_ = core(this)?;
    create::make_socket_transport(&loop_, connection, &protocol, None, None, server, true).map(drop)
}

/// The `socket.socket` of an accepted descriptor, without the system calls by which it would find out
/// its own family and type.
fn python_socket<'py>(this: Listener_<'_, 'py>, fd: OwnedFd) -> PyResult<Bound<'py, PyAny>> {
    static SOCKET: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = this.py();
    let class = ffi::imported(&SOCKET, intern!(py, "socket"), intern!(py, "socket"))?;
    let (family, kind, proto) = this.shape;
    let connection = class.call1((
        Fallible(family),
        Fallible(kind),
        Fallible(proto),
        Fallible(fd.as_raw_fd()),
    ))?;
    // Owned by the object from here on.
    let _ = fd.into_raw_fd();
    // Accepted non-blocking; the object must know it too.
    connection.call_method1(intern!(py, "settimeout"), (Fallible(0),))?;
    Ok(connection)
}

/// asyncio logs a failed set-up of a connection only in debug mode; the socket is closed.
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
    let loop_ = core(this)?;
    if !loop_.get().debug() {
        return Ok(());
    }
    let exception = error.into_value(py).into_bound(py);
    let message = "Error on transport creation for incoming connection";
    exceptions::report(&loop_, message, &exception, &[])
}

/// Out of descriptors or memory, or what else may pass: say so, and try again in a second.
fn back_off(this: Listener_<'_, '_>, message: &str, errno: i32) -> PyResult<()> {
    let py = this.py();
    let loop_ = core(this)?;
    rest(this, loop_.get())?;
    // First, because what the exception handler raises may leave the loop.
    let again = this
        .object()
        .getattr(intern!(py, "start"))
        .and_then(|start| {
            let arguments = (Fallible(limits::ACCEPT_RETRY_SECONDS), start);
            loop_.call_method1(intern!(py, "call_later"), arguments)
        });
    if let Err(error) = again {
        // Without memory for a timer it is sooner.
        loop_
            .get()
            .call_soon_or_owe(Err(error), this.object(), None, |object, _| {
                Listener::native().get(object).map_or(Ok(()), start)
            })?;
    }
    tell(this, message, errno)
}

/// An error that ends the listener, such as a socket that was closed under it.
fn failed(this: Listener_<'_, '_>, errno: i32) -> PyResult<()> {
    rest(this, core(this)?.get())?;
    tell(
        this,
        "socket.accept() failed; the listener has stopped",
        errno,
    )
}

fn tell(this: Listener_<'_, '_>, message: &str, errno: i32) -> PyResult<()> {
    let py = this.py();
    let error = error::from_io(&io::Error::from_raw_os_error(errno));
    let exception = error.into_value(py).into_bound(py);
    let wrapper = py
        .import(intern!(py, "asyncio.trsock"))?
        .getattr(intern!(py, "TransportSocket"))?;
    let socket = wrapper.call1((this.socket.get_or_none(py),))?;
    let more = [(intern!(py, "socket"), &socket)];
    let loop_ = core(this)?;
    exceptions::report(&loop_, message, &exception, &more)
}
