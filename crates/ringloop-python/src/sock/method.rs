//! Operations by the socket's own methods: `sock_recvfrom`, `sock_recvfrom_into`, `sock_recvmsg`,
//! `sock_sendto` and `sock_sendmsg`, and all others for subclasses of `socket.socket`.
//!
//! The methods know every family's form of an address, and take ownership of a control message's
//! descriptors in the call that received them.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use ringloop::embed::op::PollMode;
use ringloop::embed::sys::interest::Interest;

use super::operation::{self, Loop, Work};
use crate::ffi::{self, Argument, Obj, Visited, Visitor};

/// A method, and its arguments as a tuple.
pub(super) struct Method {
    name: Obj,
    arguments: Obj,
    interest: Interest,
}

/// `_begin_call(sock, name, arguments, sends)`.
pub fn call(
    loop_: Loop<'_, '_>,
    socket: Argument<'_, '_>,
    name: Argument<'_, '_>,
    arguments: Argument<'_, '_>,
    sends: Argument<'_, '_>,
) -> PyResult<Obj> {
    let interest = if sends.is_truthy()? { Interest::WRITE } else { Interest::READ };
    let work = Method {
        name: Obj::from_borrowed(name),
        arguments: Obj::from_borrowed(arguments),
        interest,
    };
    operation::begin(loop_, socket, work)
}

impl Method {
    /// A receiving method with one argument.
    pub(super) fn receiving(
        name: &Bound<'_, PyString>,
        argument: Argument<'_, '_>,
    ) -> PyResult<Self> {
        let arguments = ffi::new_tuple(name.py(), std::iter::once(argument.to_owned()))?;
        Ok(Self {
            name: name.clone().into(),
            arguments: arguments.into(),
            interest: Interest::READ,
        })
    }
}

impl Work for Method {
    fn attempt(&self, socket: &Bound<'_, PyAny>) -> PyResult<Option<Obj>> {
        let py = socket.py();
        let name = self.name.bind(py).cast::<PyString>()?;
        let arguments = self.arguments.bind(py).cast::<PyTuple>()?;
        operation::call_socket(socket, name, arguments.clone())
    }

    fn interest(&self) -> Interest {
        self.interest
    }

    fn mode(&self) -> PollMode {
        PollMode::Level
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        visitor.visit(&self.name)?;
        visitor.visit(&self.arguments)
    }
}
