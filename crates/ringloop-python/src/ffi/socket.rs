//! The descriptor of a `socket.socket`, read before each use.
//!
//! The application may close or detach a socket under its transport, and the next file may get its
//! number; a method of the socket would fail with EBADF, and so does a system call with the result
//! of [`SocketCell::fd`]. Calling `fileno()` for every send and receive would cost more than the
//! check is worth, so the field behind it is read directly.
//!
//! Invariants:
//! 1. `direct` is set only for an instance of `_socket.socket` whose instances have a C `int` right
//!    after the object's header (`sock_fd` of `PySocketSockObject`, `Modules/socketmodule.h`), and
//!    whose field equalled the result of `fileno()`.

use ringloop::embed::sys::fd::RawFd;
use std::ffi::c_int;
use std::mem::size_of;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::make::imported;
use super::names::intern;
use super::object::{Obj, ObjCell, Visited, Visitor};

/// Descriptor of a closed socket; system calls reject it with EBADF.
const CLOSED: RawFd = -1;

/// A socket object, or none once its owner has closed it.
pub struct SocketCell {
    socket: ObjCell,
    /// Its descriptor when it was stored.
    fd: RawFd,
    direct: bool,
}

impl SocketCell {
    /// Holds `socket`, which is open.
    pub fn new(socket: &Bound<'_, PyAny>) -> PyResult<Self> {
        let fd = fileno(socket)?;
        // SAFETY: invariant 1: the class was checked.
        let direct = is_native(socket)? && unsafe { read_fd(socket.as_ptr()) } == fd;
        Ok(Self { socket: ObjCell::new(Some(socket.clone().into())), fd, direct })
    }

    /// The original descriptor: for names and records, never for a system call.
    pub fn original_fd(&self) -> RawFd {
        self.fd
    }

    /// The descriptor for a system call; -1 once the socket was closed or detached.
    #[inline]
    pub fn fd(&self, py: Python<'_>) -> RawFd {
        let current = if self.direct {
            self.socket.with(|socket| {
                // SAFETY: invariant 1; the cell holds the original object or none.
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

    pub fn take(&self) -> Option<Obj> {
        self.socket.take()
    }

    pub fn get(&self, py: Python<'_>) -> Option<Obj> {
        self.socket.get(py)
    }

    /// The socket as a bound object, or None.
    pub fn get_or_none<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.socket.get_or_none(py)
    }

    pub fn is_some(&self) -> bool {
        self.socket.is_some()
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.socket.visit(visitor)
    }
}

/// Whether an object is exactly a `socket.socket`: then the system call does what its method would.
pub fn is_plain_socket(socket: &Bound<'_, PyAny>) -> bool {
    imported!(socket.py(), PyType, "socket", "socket")
        .is_ok_and(|class| socket.get_type().is(class))
}

fn fileno(socket: &Bound<'_, PyAny>) -> PyResult<RawFd> {
    socket.call_method0(intern!(socket.py(), "fileno"))?.extract()
}

/// Whether an object has the layout of `_socket.socket`.
fn is_native(socket: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = imported!(socket.py(), PyType, "_socket", "socket")?;
    // SAFETY: a type object is alive as long as the borrow, and its size never changes.
    let size = unsafe { (*class.as_type_ptr()).tp_basicsize as usize };
    Ok(size >= size_of::<ffi::PyObject>() + size_of::<c_int>() && socket.is_instance(class)?)
}

/// Reads the field after the header.
///
/// # Safety
/// `socket` is alive and as large as invariant 1 requires.
unsafe fn read_fd(socket: *mut ffi::PyObject) -> RawFd {
    // SAFETY: the caller's contract: the object extends beyond its header.
    let field = unsafe { socket.add(1) };
    // SAFETY: as above; the header's alignment suffices for an `int`. Volatile: Python writes it.
    unsafe { field.cast::<c_int>().read_volatile() }
}
