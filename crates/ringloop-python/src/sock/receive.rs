//! `sock_recv` and `sock_recv_into`.

use std::io;

use pyo3::prelude::*;

use super::method::Method;
use super::operation::{self, Loop, Work};
use crate::error;
use crate::ffi::{self, Argument, IntoObject as _, Obj, Visited, Visitor, intern};

/// Destination of received bytes.
enum Receive {
    /// A new `bytes` of at most this length.
    Bytes(usize),
    /// A writable object.
    Into(Obj),
}

/// `_begin_recv(sock, n)`.
pub fn recv(
    loop_: Loop<'_, '_>,
    socket: Argument<'_, '_>,
    size: Argument<'_, '_>,
) -> PyResult<Obj> {
    // recv(0) returns without a system call.
    if let Ok(bytes @ 1..) = size.extract::<isize>()
        && ffi::is_plain_socket(&socket)
    {
        return operation::begin(loop_, socket, Receive::Bytes(bytes.unsigned_abs()));
    }
    // A subclass, or an argument that the method rejects or treats specially.
    let method = Method::receiving(intern!(loop_.py(), "recv"), size)?;
    operation::begin(loop_, socket, method)
}

/// `_begin_recv_into(sock, buf)`.
pub fn recv_into(
    loop_: Loop<'_, '_>,
    socket: Argument<'_, '_>,
    buffer: Argument<'_, '_>,
) -> PyResult<Obj> {
    if ffi::is_plain_socket(&socket) && ffi::is_writable(buffer) {
        return operation::begin(loop_, socket, Receive::Into(Obj::from_borrowed(buffer)));
    }
    let method = Method::receiving(intern!(loop_.py(), "recv_into"), buffer)?;
    operation::begin(loop_, socket, method)
}

impl Work for Receive {
    fn attempt(&self, socket: &Bound<'_, PyAny>) -> PyResult<Option<Obj>> {
        let py = socket.py();
        match self {
            Self::Bytes(size) => {
                let fd = operation::fileno(socket)?;
                unless_blocked(ffi::receive_bytes(py, fd, *size)?)
            }
            Self::Into(buffer) => {
                let fd = operation::fileno(socket)?;
                let received = ffi::receive_into(buffer.bind(py).as_borrowed(), fd)?;
                match unless_blocked(received)? {
                    Some(count) => Ok(Some(count.into_object(py)?.into())),
                    None => Ok(None),
                }
            }
        }
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        match self {
            Self::Bytes(_) => Visited::Continue(()),
            Self::Into(object) => visitor.visit(object),
        }
    }
}

fn unless_blocked<T>(received: io::Result<T>) -> PyResult<Option<T>> {
    match received {
        Ok(value) => Ok(Some(value)),
        Err(error) if error::is_blocked(&error) => Ok(None),
        Err(error) => Err(error::from_io(&error)),
    }
}
