//! `sock_recvfrom`, `sock_recvfrom_into`, `sock_recvmsg`, `sock_sendto` and `sock_sendmsg`.
//!
//! The socket's own methods make the calls: they know every family's form of an address, and make the
//! descriptors of a control message somebody's in the call that received them.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringloop::embed::sys::interest::Interest;

use super::operation::{self, Loop, Work};
use crate::ffi::{Args, Obj, Visited, Visitor, intern};

/// Which method, and its arguments as a tuple.
pub(super) enum Datagram {
    RecvFrom(Obj),
    RecvFromInto(Obj),
    RecvMsg(Obj),
    SendTo(Obj),
    SendMsg(Obj),
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

/// `_begin_recvmsg(sock, bufsize, ancbufsize, flags)`.
pub fn recvmsg(loop_: Loop<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    let [socket, ..] = operation::positional::<4>(args, "sock_recvmsg")?;
    begin(loop_, socket, Datagram::RecvMsg(args.tuple(1)?.into()))
}

/// `_begin_sendto(sock, data, address)`.
pub fn sendto(loop_: Loop<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    let [socket, ..] = operation::positional::<3>(args, "sock_sendto")?;
    begin(loop_, socket, Datagram::SendTo(args.tuple(1)?.into()))
}

/// `_begin_sendmsg(sock, buffers, ancdata, flags, address)`.
pub fn sendmsg(loop_: Loop<'_, '_>, args: Args<'_, '_>) -> PyResult<Obj> {
    let [socket, ..] = operation::positional::<5>(args, "sock_sendmsg")?;
    begin(loop_, socket, Datagram::SendMsg(args.tuple(1)?.into()))
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
            Self::RecvMsg(_) => intern!(py, "recvmsg"),
            Self::SendTo(_) => intern!(py, "sendto"),
            Self::SendMsg(_) => intern!(py, "sendmsg"),
        };
        let arguments = self.arguments().bind(py).cast::<PyTuple>()?;
        operation::call_socket(socket, name, arguments.clone())
    }

    pub(super) fn interest(&self) -> Interest {
        match self {
            Self::RecvFrom(_) | Self::RecvFromInto(_) | Self::RecvMsg(_) => Interest::READ,
            Self::SendTo(_) | Self::SendMsg(_) => Interest::WRITE,
        }
    }

    pub(super) fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        visitor.visit(self.arguments())
    }

    fn arguments(&self) -> &Obj {
        match self {
            Self::RecvFrom(arguments)
            | Self::RecvFromInto(arguments)
            | Self::RecvMsg(arguments)
            | Self::SendTo(arguments)
            | Self::SendMsg(arguments) => arguments,
        }
    }
}
