//! `sock_sendall`.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use ringloop::embed::sys::interest::Interest;

use super::operation::{self, Loop, Work};
use crate::error;
use crate::ffi::{self, Argument, Obj, ObjCell, Visited, Visitor, intern};

/// Bytes to send completely.
struct SendAll {
    /// A `memoryview`, so that its owner cannot resize it meanwhile; empty after the end.
    data: ObjCell,
    sent: Cell<usize>,
}

/// `_begin_sendall(sock, data)`.
pub fn sendall(
    loop_: Loop<'_, '_>,
    socket: Argument<'_, '_>,
    data: Argument<'_, '_>,
) -> PyResult<Obj> {
    let py = loop_.py();
    operation::check(loop_, socket)?;
    let sent = match send_once(&socket, &data, 0)? {
        Progress::All => return Ok(py.None().into_bound(py).into()),
        Progress::Part(sent) => sent,
    };
    let work = SendAll {
        data: ObjCell::new(Some(PyMemoryView::from(&data)?.into())),
        sent: Cell::new(sent),
    };
    operation::suspend(loop_, socket, work)
}

/// Result of one send(2).
enum Progress {
    /// Everything is sent.
    All,
    /// This many bytes; 0 if it would block.
    Part(usize),
}

impl Work for SendAll {
    fn attempt(&self, socket: &Bound<'_, PyAny>) -> PyResult<Option<Obj>> {
        let py = socket.py();
        match send_once(socket, &self.data.get_or_none(py), self.sent.get())? {
            Progress::All => Ok(Some(py.None().into_bound(py).into())),
            Progress::Part(count) => {
                self.sent.set(self.sent.get() + count);
                Ok(None)
            }
        }
    }

    fn interest(&self) -> Interest {
        Interest::WRITE
    }

    fn release(&self) {
        drop(self.data.take());
    }

    fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.data.visit(visitor)
    }
}

fn send_once(
    socket: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    skip: usize,
) -> PyResult<Progress> {
    if !ffi::is_plain_socket(socket) {
        return send_by_method(socket, data, skip);
    }
    let fd = operation::fileno(socket)?;
    let (sent, len) = ffi::send_from(data.as_borrowed(), skip, fd)?;
    match sent {
        Ok(count) if skip + count >= len => Ok(Progress::All),
        Ok(count) => Ok(Progress::Part(count)),
        Err(error) if error::is_blocked(&error) => Ok(Progress::Part(0)),
        Err(error) => Err(error::from_io(&error)),
    }
}

/// A subclass may override `send`.
fn send_by_method(
    socket: &Bound<'_, PyAny>,
    data: &Bound<'_, PyAny>,
    skip: usize,
) -> PyResult<Progress> {
    let py = socket.py();
    let rest = if skip == 0 { data.clone() } else { data.get_item(ffi::new_slice(py, skip)?)? };
    let count = match operation::call_socket(socket, intern!(py, "send"), (&rest,))? {
        Some(count) => count.bind(py).extract::<usize>()?,
        None => 0,
    };
    if count == rest.len()? { Ok(Progress::All) } else { Ok(Progress::Part(count)) }
}
