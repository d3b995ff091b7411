//! The descriptor of a `socket.socket`, asked for before each use.
//!
//! The user may close or detach a socket under its transport, and the next file may get its number; a
//! method of the socket would fail with EBADF, and so does a system call with what [`SocketCell::fd`]
//! answers. A call of `fileno()` for every send and receive would cost more than the check is worth,
//! so the field behind it is read where `socket.socket` has it.
//!
//! Invariants:
//! 1. `direct` is set only for an instance of `_socket.socket` whose instances have a C `int` right
//!    behind the object's head (`sock_fd` of `PySocketSockObject`, `Modules/socketmodule.h`); this one's
//!    was found equal to what `fileno()` answered.

use std::ffi::c_int;
use std::mem::size_of;
use std::os::fd::RawFd;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use super::names::intern;
use super::object::{Obj, ObjCell, Visited, Visitor};

/// What a closed socket answers; system calls refuse it with EBADF.
const CLOSED: RawFd = -1;

/// A socket object, or nothing once its owner has closed it.
pub struct SocketCell {
    socket: ObjCell,
    /// Its descriptor when it was put in.
    fd: RawFd,
    direct: bool,
}

impl SocketCell {
    /// Hold `socket`, which is open.
    pub fn new(socket: &Bound<'_, PyAny>) -> PyResult<Self> {
        let fd = fileno(socket)?;
        // SAFETY: invariant 1: the class was checked.
        let direct = is_native(socket)? && unsafe { read_fd(socket.as_ptr()) } == fd;
        Ok(Self {
            socket: ObjCell::new(Some(socket.clone().into())),
            fd,
            direct,
        })
    }

    /// The descriptor it had at first: for names and records, never for a system call.
    pub fn original_fd(&self) -> RawFd {
        self.fd
    }

    /// The descriptor for a system call; -1 once the socket was closed or detached, by whomever.
    #[inline]
    pub fn fd(&self, py: Python<'_>) -> RawFd {
        let current = if self.direct {
            self.socket.with(|socket| {
                // SAFETY: invariant 1; the cell holds the same object as at first, or nothing.
                socket.map_or(CLOSED, |socket| unsafe { read_fd(socket.as_ptr()) })
            })
        } else {
            self.ask(py)
        };
        if current == self.fd { current } else { CLOSED }
    }

    #[cold]
    fn ask(&self, py: Python<'_>) -> RawFd {
        match self.socket.get(py) {
            Some(socket) => fileno(socket.bind(py)).unwrap_or(CLOSED),
            None => CLOSED,
        }
    }

    /// Move the socket out.
    pub fn take(&self) -> Option<Obj> {
        self.socket.take()
    }

    /// Make a second reference to the socket.
    pub fn get(&self, py: Python<'_>) -> Option<Obj> {
        self.socket.get(py)
    }

    /// The socket as a bound object, or None.
    pub fn get_or_none<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.socket.get_or_none(py)
    }

    /// Say whether there is a socket.
    pub fn is_some(&self) -> bool {
        self.socket.is_some()
    }

    /// Show the socket to the collector.
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.socket.visit(visitor)
    }
}

fn fileno(socket: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    socket
        .call_method0(intern!(socket.py(), "fileno"))?
        .extract()
}

/// Say whether an object is laid out as `_socket.socket` is.
fn is_native(socket: &Bound<'_, PyAny>) -> PyResult<bool> {
    static BASE: PyOnceLock<Option<Py<PyType>>> = PyOnceLock::new();
    let py = socket.py();
    let base = BASE.get_or_try_init(py, || {
        let class = py
            .import(intern!(py, "_socket"))?
            .getattr(intern!(py, "socket"))?;
        let size: usize = class.getattr(intern!(py, "__basicsize__"))?.extract()?;
        let roomy = size >= size_of::<ffi::PyObject>() + size_of::<c_int>();
        let class = class.cast_into::<PyType>()?;
        Ok::<_, PyErr>(roomy.then(|| class.unbind()))
    })?;
    match base {
        Some(base) => socket.is_instance(base.bind(py)),
        None => Ok(false),
    }
}

/// Read the field behind the head.
///
/// # Safety
/// `socket` is alive and as large as invariant 1 says.
unsafe fn read_fd(socket: *mut ffi::PyObject) -> RawFd {
    // SAFETY: the caller's contract: the object goes on behind its head.
    let field = unsafe { socket.add(1) };
    // SAFETY: as above; the head's alignment is enough for an `int`. Volatile: Python writes it.
    unsafe { field.cast::<c_int>().read_volatile() }
}
