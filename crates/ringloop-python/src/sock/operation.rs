//! An operation that would have blocked: its remaining work, and the poll that it waits for.
//!
//! The coroutine around it calls `wait` (a future), then `attempt`, until there is a result, and
//! `end` in every case. Between readiness and `attempt` nothing is taken from the socket, so
//! cancelling a task there loses nothing.

use ringloop::embed::sys::fd::RawFd;
use ringloop::embed::sys::libc;
use std::cell::Cell;
use std::ffi::CStr;

use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use ringloop::embed::Event;
use ringloop::embed::op::{PollBorrowed, PollMode, Request};
use ringloop::embed::sys::interest::Interest;

use crate::error;
use crate::event_loop::{Completes, Handler, LoopCore, Watch};
use crate::ffi::{
    self, Argument, Definition, Fallible, Obj, ObjCell, Payload, Raise as _, This, Visited,
    Visitor, imported, intern, members, payload,
};
use crate::transport::thread::Owner;

pub(super) type Loop<'a, 'py> = Borrowed<'a, 'py, LoopCore>;

/// Remaining work.
pub(super) trait Work: 'static {
    /// Continues; `None` if the call would block.
    fn attempt(&self, socket: &Bound<'_, PyAny>) -> PyResult<Option<Obj>>;
    /// The direction to wait for.
    fn interest(&self) -> Interest {
        Interest::READ
    }
    /// How to wait. A socket whose address is to be free as soon as it is closed is not polled
    /// briefly: a listener, or one that receives datagrams.
    fn mode(&self) -> PollMode {
        PollMode::Brief
    }
    /// The operation has ended: returns what its caller may not change or resize meanwhile. An
    /// exception keeps the operation, through its traceback.
    fn release(&self) {}
    fn visit(&self, visitor: &mut dyn Visitor) -> Visited;
}

/// A waiting operation.
pub struct Operation {
    owner: Owner,
    socket: ObjCell,
    fd: RawFd,
    work: Box<dyn Work>,
    /// Resolved when the socket is ready.
    future: ObjCell,
    armed: Cell<Option<Watch>>,
    /// The application closed the socket under the operation. As on asyncio, whose selector does not
    /// report that, only a cancel ends it.
    closed: Cell<bool>,
}

type Operation_<'a, 'py> = This<'a, 'py, Operation>;

impl Payload for Operation {
    const NAME: &'static CStr = c"ringloop._native.SocketOperation";
    const DOC: &'static CStr = c"An operation on a socket that has to wait.";
    payload!(Operation; define define;
        visit owner, socket, future, work;
        clear socket, future);
}

fn define(type_: &mut Definition<Operation>) {
    members!(type_, Operation;
        wait() => wait, "Return a future that is done once the socket is ready.";
        attempt() => attempt, "Return the result, or the operation itself where it has to wait again.";
        end() => end, "Stop waiting, and return the caller's buffer.";
        _resolve() => resolve, "Wake the coroutine.";
    );
}

/// Tries at once; if that would block, returns the operation that waits.
pub(super) fn begin(
    loop_: Loop<'_, '_>,
    socket: Argument<'_, '_>,
    work: impl Work,
) -> PyResult<Obj> {
    check(loop_, socket)?;
    match work.attempt(&socket)? {
        Some(result) => Ok(result),
        None => suspend(loop_, socket, work),
    }
}

/// Makes the operation that waits until `work` can continue.
pub(super) fn suspend(
    loop_: Loop<'_, '_>,
    socket: Argument<'_, '_>,
    work: impl Work,
) -> PyResult<Obj> {
    let py = loop_.py();
    let fd: RawFd = fileno(&socket)?;
    loop_.get().check_open()?;
    if loop_.get().is_transports(fd)? {
        loop_.call_method1(intern!(py, "_ensure_fd_no_transport"), (Fallible(fd),))?;
    }
    let operation = Operation {
        owner: Owner::new(&loop_),
        socket: ObjCell::new(Some(Obj::from_borrowed(socket))),
        fd,
        work: Box::new(work),
        future: ObjCell::new(None),
        armed: Cell::new(None),
        closed: Cell::new(false),
    };
    Operation::native().instantiate(py, operation).map(Obj::from)
}

/// asyncio's checks before each operation.
pub(super) fn check(loop_: Loop<'_, '_>, socket: Argument<'_, '_>) -> PyResult<()> {
    let py = loop_.py();
    // A subclass is no `ssl.SSLSocket`, which can be told without importing `ssl`.
    if !ffi::is_plain_socket(&socket)
        && let Ok(class) = imported!(py, PyType, "ssl", "SSLSocket")
        && socket.is_instance(class)?
    {
        return Err(PyTypeError::raise("Socket cannot be of type SSLSocket"));
    }
    if loop_.get().debug() && socket.call_method0(intern!(py, "gettimeout"))?.ne(Fallible(0))? {
        return Err(PyValueError::raise("the socket must be non-blocking"));
    }
    Ok(())
}

/// The socket's current descriptor: -1 once it is closed, so that the system call fails with EBADF
/// instead of using a reused number.
pub(super) fn fileno(socket: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    socket.call_method0(intern!(socket.py(), "fileno"))?.extract()
}

/// Calls the socket's own method; `None` if it would block.
pub(super) fn call_socket<'py>(
    socket: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyResult<Option<Obj>> {
    match socket.call_method1(name, arguments) {
        Ok(result) => Ok(Some(result.into())),
        Err(error) if error::would_block(socket.py(), &error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn wait(this: Operation_<'_, '_>) -> PyResult<Obj> {
    let py = this.py();
    let loop_ = this.owner.core(this.py())?;
    let core = loop_.get();
    disarm(this)?;
    let future: Obj = loop_.call_method0(intern!(py, "create_future"))?.into();
    drop(this.future.replace(Some(future.clone_ref(py))));
    if this.closed.get() {
        return Ok(future);
    }
    // The application may close the socket while this waits, and as soon as it ends: no
    // registration may be left.
    let (interest, mode) = (this.work.interest(), this.work.mode());
    let poll = PollBorrowed { fd: this.fd, interest, mode };
    let watched = core.watch_by(Handler::of(this), 0, Request::PollBorrowed(poll))?;
    this.armed.set(Some(watched.map_err(|refusal| error::from_io(&refusal))?));
    Ok(future)
}

fn attempt(this: Operation_<'_, '_>) -> PyResult<Obj> {
    let socket = this.socket.get_or_none(this.py());
    let result = match this.work.attempt(&socket) {
        Err(_) if fileno(&socket).is_ok_and(|fd| fd < 0) => {
            // Woken by the next file of that number.
            this.closed.set(true);
            None
        }
        result => result?,
    };
    Ok(result.unwrap_or_else(|| Obj::from_borrowed(this.object())))
}

fn end(this: Operation_<'_, '_>) -> PyResult<()> {
    this.work.release();
    disarm(this)
}

impl Completes for Operation {
    /// The socket is ready, or the poll failed: either way the attempt finds out.
    fn completed(this: Operation_<'_, '_>, event: Event) -> PyResult<()> {
        if event.completion.result == -libc::ECANCELED {
            return Ok(());
        }
        disarm(this)?;
        resolve(this)
    }
}

/// Wakes the coroutine. Without memory it is tried again: no other event would wake it.
fn resolve(this: Operation_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let future = this.future.get_or_none(py);
    if future.is_none() {
        return Ok(());
    }
    let resolved = future
        .call_method0(intern!(py, "done"))
        .and_then(|done| done.is_truthy())
        .and_then(|done| {
            if done {
                return Ok(());
            }
            future.call_method1(intern!(py, "set_result"), (py.None(),)).map(drop)
        });
    match resolved {
        Err(error) if error.is_instance_of::<PyMemoryError>(py) => {
            this.owner.core(py)?.get().owe(this.object(), intern!(py, "_resolve"), None)
        }
        resolved => resolved,
    }
}

/// Stops the poll at once: nothing of it is left on return.
fn disarm(this: Operation_<'_, '_>) -> PyResult<()> {
    let Some(watch) = this.armed.take() else {
        return Ok(());
    };
    let loop_ = this.owner.core(this.py())?;
    let core = loop_.get();
    if core.is_closed() || core.engine.is_of_another_process() {
        return Ok(());
    }
    core.unwatch(watch).map(drop)
}
