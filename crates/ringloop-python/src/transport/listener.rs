//! A listening socket: from a completed accept to a transport.
//!
//! Owns: the accept in flight of one listener. Called by: the loop's `_start_serving` and
//! `_stop_serving`, and the turn. Never does: bind or listen; that is the server's.
//!
//! Accept is multishot and native up to `connection_made`. Out of descriptors, it pauses for a second
//! as asyncio does. A TLS listener hands each connection to a Python callback instead. Each connection
//! is made in a copy of the context in which serving was started, as asyncio's accepting task is.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use ringloop::driver::{Event, Key, Sink, Token};
use ringloop::op::{Accept, Request};

use super::create;
use super::leaves_the_loop;
use crate::error;
use crate::event_loop::{Behaviour, Handler, LoopCore};
use crate::ffi::{
    self, Args, Definition, Native, Obj, ObjCell, Payload, SocketCell, This, Visited, Visitor,
    method,
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
        type_.method(method!(
            Listener,
            c"start",
            start,
            c"start()\n--\n\nAccept connections."
        ));
        type_.method(method!(
            Listener,
            c"stop",
            stop,
            c"stop()\n--\n\nAccept no more."
        ));
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

/// Make a listener for `socket`; it accepts after `start()`.
pub fn new_listener<'py>(
    loop_: &Bound<'py, LoopCore>,
    socket: &Bound<'py, PyAny>,
    factory: &Bound<'py, PyAny>,
    server: &Bound<'py, PyAny>,
    accepted: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = loop_.py();
    let given = |object: &Bound<'py, PyAny>| {
        ObjCell::new((!object.is_none()).then(|| object.clone().into()))
    };
    let number = |name| {
        socket
            .getattr(name)?
            .call_method0(intern!(py, "__index__"))?
            .extract()
    };
    let listener = Listener {
        loop_: ObjCell::new(Some(loop_.clone().into_any().into())),
        socket: SocketCell::new(socket)?,
        shape: (number("family")?, number("type")?, number("proto")?),
        factory: given(factory),
        server: given(server),
        accepted: given(accepted),
        context: ObjCell::new(Some(ffi::context_copy_current(py)?)),
        token: Cell::new(Token(0)),
        armed: Cell::new(None),
        stopped: Cell::new(false),
    };
    Listener::native().instantiate(py, listener)
}

fn start(this: Listener_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("start", 0)?;
    if this.stopped.get() || this.armed.get().is_some() {
        return Ok(());
    }
    let loop_ = core(this)?;
    let core = loop_.get();
    let handler = Handler {
        object: Obj::from_borrowed(this.object()),
        behaviour: &LISTENER,
    };
    let token = core.handlers.with(|slab| slab.register(handler))?;
    this.token.set(token);
    arm(this, core)
}

fn arm(this: Listener_<'_, '_>, core: &LoopCore) -> PyResult<()> {
    let accept = Request::Accept(Accept {
        fd: this.socket.fd(this.py()),
        multi: true,
    });
    let sink = Sink::Handler(this.token.get());
    let key = core.engine.driver(|driver| driver.submit(accept, sink))?;
    this.armed.set(Some(key));
    Ok(())
}

fn stop(this: Listener_<'_, '_>, args: Args<'_, '_>) -> PyResult<()> {
    args.expect_positional("stop", 0)?;
    end(this)
}

fn end(this: Listener_<'_, '_>) -> PyResult<()> {
    this.stopped.set(true);
    let loop_ = core(this)?;
    let core = loop_.get();
    if core.is_closed() {
        return Ok(());
    }
    drop(core.handlers.with(|slab| slab.remove(this.token.get()))?);
    drop((
        this.factory.take(),
        this.server.take(),
        this.accepted.take(),
        this.context.take(),
    ));
    let Some(key) = this.armed.take() else {
        return Ok(());
    };
    let fd = descriptor_to_release(this, core)?;
    // Connections that the kernel has taken and nobody will see are closed by the engine.
    core.engine.driver(|driver| {
        driver.forget(key);
        if let Some(fd) = fd {
            driver.release(fd);
        }
    })?;
    // A ring learns of it by the next enter, which only its own thread can make, and the socket stays bound until then.
    if core.engine.is_tied_to_another_thread()? {
        return Ok(());
    }
    core.engine.look()
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

/// What the loop does with a listener.
static LISTENER: Behaviour = Behaviour {
    completed: |_, object, event| {
        Listener::native()
            .get(object)
            .map_or(Ok(()), |this| completed(this, event))
    },
    flush: Behaviour::NEVER_FLUSHED,
    abandoned: Behaviour::NOTHING_LEFT,
};

/// One completion of the accept.
fn completed(this: Listener_<'_, '_>, event: Event) -> PyResult<()> {
    let completion = event.completion;
    if !completion.more {
        this.armed.set(None);
    }
    let taken = if completion.result >= 0 {
        let fd = ffi::own_descriptor(completion.result);
        if this.socket.fd(this.py()) < 0 {
            // Its owner has closed the listening socket; a ring's accept holds on to the file.
            return end(this);
        }
        accepted(this, fd)
    } else {
        Ok(())
    };
    if completion.more || this.stopped.get() {
        return taken;
    }
    // Also where an interrupt leaves the loop: the next run accepts again.
    taken.and(go_on(this, -completion.result))
}

/// The accept has ended, with this errno or, below 1, with a connection.
fn go_on(this: Listener_<'_, '_>, errno: i32) -> PyResult<()> {
    match errno {
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
            back_off(this, "socket.accept() out of system resource", errno)
        }
        libc::ECANCELED => Ok(()),
        // The peer was gone before it could be accepted.
        libc::ECONNABORTED | libc::EINTR | libc::EAGAIN => arm(this, core(this)?.get()),
        // The socket accepts nothing any more: it was closed under the listener, or shut down.
        libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP | libc::EFAULT => {
            failed(this, errno)
        }
        // accept(2) passes on what the network or a filter had against one connection.
        errno if errno > 0 => back_off(this, "socket.accept() failed; trying again", errno),
        _ => arm(this, core(this)?.get()),
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
    create::create(&create::Parts {
        loop_: &core(this)?,
        socket: connection,
        protocol: &protocol,
        waiter: None,
        extra: None,
        server: server.as_ref().map(|server| server.bind(py)),
    })?;
    Ok(())
}

/// The `socket.socket` of an accepted descriptor, without the system calls by which it would find out
/// its own family and type.
fn python_socket<'py>(this: Listener_<'_, 'py>, fd: OwnedFd) -> PyResult<Bound<'py, PyAny>> {
    static SOCKET: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = this.py();
    let class = SOCKET.import(py, "socket", "socket")?;
    let (family, kind, proto) = this.shape;
    let connection = class.call1((family, kind, proto, fd.as_raw_fd()))?;
    // Owned by the object from here on.
    let _ = fd.into_raw_fd();
    // Accepted non-blocking; the object must know it too.
    connection.call_method1(intern!(py, "settimeout"), (0,))?;
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
    let context = PyDict::new(py);
    context.set_item(
        "message",
        "Error on transport creation for incoming connection",
    )?;
    context.set_item("exception", error.into_value(py))?;
    loop_.call_method1(intern!(py, "call_exception_handler"), (context,))?;
    Ok(())
}

/// Out of descriptors or memory, or what else may pass: say so, and try again in a second.
fn back_off(this: Listener_<'_, '_>, message: &str, errno: i32) -> PyResult<()> {
    let py = this.py();
    let loop_ = core(this)?;
    drop(
        loop_
            .get()
            .handlers
            .with(|slab| slab.remove(this.token.get()))?,
    );
    // First, because what the exception handler raises may leave the loop.
    let again = this.object().getattr(intern!(py, "start"))?;
    loop_.call_method1(
        intern!(py, "call_later"),
        (limits::ACCEPT_RETRY_SECONDS, again),
    )?;
    tell(this, message, errno)
}

/// An error that ends the listener, such as a socket that was closed under it.
fn failed(this: Listener_<'_, '_>, errno: i32) -> PyResult<()> {
    drop(
        core(this)?
            .get()
            .handlers
            .with(|slab| slab.remove(this.token.get()))?,
    );
    tell(
        this,
        "socket.accept() failed; the listener has stopped",
        errno,
    )
}

fn tell(this: Listener_<'_, '_>, message: &str, errno: i32) -> PyResult<()> {
    let py = this.py();
    let error = error::from_io(&io::Error::from_raw_os_error(errno));
    let context = PyDict::new(py);
    context.set_item("message", message)?;
    context.set_item("exception", error.into_value(py))?;
    let wrapper = py.import("asyncio.trsock")?.getattr("TransportSocket")?;
    context.set_item("socket", wrapper.call1((this.socket.get_or_none(py),))?)?;
    core(this)?.call_method1(intern!(py, "call_exception_handler"), (context,))?;
    Ok(())
}
