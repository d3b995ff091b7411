//! `sock_connect`, once the address is resolved, and `sock_accept`.

use ringloop::embed::sys::libc;

use pyo3::exceptions::{PyOSError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use ringloop::embed::op::PollMode;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::socket;

use super::operation::{self, Loop, Work};
use crate::error;
use crate::ffi::{
    self, Argument, IntoObject as _, Obj, Raise as _, Visited, Visitor, imported, intern,
};

/// A connect(2) in progress.
struct Connect {
    address: Obj,
}

/// `_begin_connect(sock, address)`.
pub fn connect(
    loop_: Loop<'_, '_>,
    socket: Argument<'_, '_>,
    address: Argument<'_, '_>,
) -> PyResult<Obj> {
    let py = loop_.py();
    if begin_connect(&socket, &address)? {
        return Ok(py.None().into_bound(py).into());
    }
    let work = Connect { address: Obj::from_borrowed(address) };
    operation::suspend(loop_, socket, work)
}

/// Calls the socket's own method, which knows every family's form of an address; `false` if the
/// connection is under way.
fn begin_connect<'py>(socket: &Bound<'py, PyAny>, address: &Bound<'py, PyAny>) -> PyResult<bool> {
    let py = socket.py();
    if !has_original_connect(socket)? {
        let connected = operation::call_socket(socket, intern!(py, "connect"), (address,))?;
        return Ok(connected.is_some());
    }
    // Without the exception for what is no error here.
    let errno = match socket.call_method1(intern!(py, "connect_ex"), (address,)) {
        // A wrong address; the exception names the method.
        Err(error)
            if error.is_instance_of::<PyTypeError>(py)
                || error.is_instance_of::<PyOverflowError>(py) =>
        {
            return socket.call_method1(intern!(py, "connect"), (address,)).map(|_| true);
        }
        called => called?,
    };
    match errno.extract()? {
        0 => Ok(true),
        libc::EINPROGRESS | libc::EAGAIN | libc::EALREADY | libc::EINTR => Ok(false),
        errno => Err(error::from_errno(errno)),
    }
}

/// Whether `connect` of a socket is the interpreter's, which no subclass and no program has replaced.
fn has_original_connect(socket: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = socket.py();
    if !ffi::is_plain_socket(socket) {
        return Ok(false);
    }
    let name = intern!(py, "connect");
    let original = imported!(py, PyType, "_socket", "socket")?.getattr(name)?;
    Ok(socket.get_type().getattr(name)?.is(&original))
}

impl Work for Connect {
    /// The socket became writable: connected, or failed.
    fn attempt(&self, socket: &Bound<'_, PyAny>) -> PyResult<Option<Obj>> {
        let py = socket.py();
        let pending = socket::take_error(operation::fileno(socket)?)
            .map_err(|error| error::from_io(&error))?;
        let Some(errno) = pending.and_then(|error| error.raw_os_error()) else {
            return Ok(Some(py.None().into_bound(py).into()));
        };
        let template = intern!(py, "Connect call failed %s");
        let text = ffi::fill_template(template, &[self.address.bind(py)])?;
        let arguments = (errno, text).into_object(py)?;
        Err(PyOSError::raise_with(&arguments))
    }

    fn interest(&self) -> Interest {
        Interest::WRITE
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        visitor.visit(&self.address)
    }
}

struct Accept;

/// `_begin_accept(sock)`.
pub fn accept(loop_: Loop<'_, '_>, socket: Argument<'_, '_>) -> PyResult<Obj> {
    operation::begin(loop_, socket, Accept)
}

impl Work for Accept {
    /// The result is `(socket, address)`.
    fn attempt(&self, socket: &Bound<'_, PyAny>) -> PyResult<Option<Obj>> {
        let py = socket.py();
        let accepted = operation::call_socket(socket, intern!(py, "accept"), ())?;
        if let Some(pair) = &accepted {
            pair.bind(py).get_item(0)?.call_method1(intern!(py, "setblocking"), (false,))?;
        }
        Ok(accepted)
    }

    fn mode(&self) -> PollMode {
        PollMode::Level
    }

    fn visit(&self, _visitor: &mut dyn Visitor) -> Visited {
        Visited::Continue(())
    }
}
