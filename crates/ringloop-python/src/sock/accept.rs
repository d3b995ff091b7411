//! `sock_accept`.

use pyo3::prelude::*;

use super::operation::{self, Loop, Work};
use crate::ffi::{Argument, Obj, intern};

/// `_begin_accept(sock)`.
pub fn accept(loop_: Loop<'_, '_>, socket: Argument<'_, '_>) -> PyResult<Obj> {
    operation::begin(loop_, socket, Work::Accept)
}

/// Accepts one connection; the result is `(socket, address)`.
pub(super) fn attempt(socket: &Bound<'_, PyAny>) -> PyResult<Option<Obj>> {
    let py = socket.py();
    let accepted = operation::call_socket(socket, intern!(py, "accept"), ())?;
    if let Some(pair) = &accepted {
        pair.bind(py)
            .get_item(0)?
            .call_method1(intern!(py, "setblocking"), (false,))?;
    }
    Ok(accepted)
}
