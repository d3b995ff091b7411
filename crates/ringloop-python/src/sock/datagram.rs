//! `sock_recvfrom`, `sock_recvfrom_into` and `sock_sendto`.
//!
//! The socket's own methods make the calls: they know every family's form of an address.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringloop::sys::interest::Interest;

use super::operation::{self, Loop, Work};
use crate::ffi::{Args, Obj, Visited, Visitor};

/// Which method, and its arguments as a tuple.
pub(super) enum Datagram {
    RecvFrom(Obj),
    RecvFromInto(Obj),
    SendTo(Obj),
}

/// `_begin_recvfrom(sock, bufsize)`.
pub fn recvfrom(loop_: Loop<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    let [socket, _] = operation::positional(args, "sock_recvfrom")?;
    begin(loop_, socket, Datagram::RecvFrom(args.tuple(1)?.into()))
}

/// `_begin_recvfrom_into(sock, buf, nbytes)`.
pub fn recvfrom_into(loop_: Loop<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    let [socket, ..] = operation::positional::<3>(args, "sock_recvfrom_into")?;
    begin(loop_, socket, Datagram::RecvFromInto(args.tuple(1)?.into()))
}

/// `_begin_sendto(sock, data, address)`.
pub fn sendto(loop_: Loop<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    let [socket, ..] = operation::positional::<3>(args, "sock_sendto")?;
    begin(loop_, socket, Datagram::SendTo(args.tuple(1)?.into()))
}

fn begin(loop_: Loop<'_, '_>, socket: Borrowed<'_, '_, PyAny>, work: Datagram) -> PyResult<Obj> {
    operation::begin(loop_, socket, Work::Datagram(work))
}

impl Datagram {
    pub(super) fn attempt(&self, socket: &Bound<'_, PyAny>) -> PyResult<Option<Obj>> {
        let py = socket.py();
        let name = match self {
            Self::RecvFrom(_) => intern!(py, "recvfrom"),
            Self::RecvFromInto(_) => intern!(py, "recvfrom_into"),
            Self::SendTo(_) => intern!(py, "sendto"),
        };
        let arguments = self.arguments().bind(py).cast::<PyTuple>()?;
        operation::call_socket(socket, name, arguments.clone())
    }

    pub(super) fn interest(&self) -> Interest {
        match self {
            Self::RecvFrom(_) | Self::RecvFromInto(_) => Interest::READ,
            Self::SendTo(_) => Interest::WRITE,
        }
    }

    pub(super) fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        visitor.visit(self.arguments())
    }

    fn arguments(&self) -> &Obj {
        match self {
            Self::RecvFrom(arguments) | Self::RecvFromInto(arguments) | Self::SendTo(arguments) => {
                arguments
            }
        }
    }
}
