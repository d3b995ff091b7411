//! `BufferedProtocol`: requests its buffer, fills it, and returns it.
//!
//! Called by: `read`. Buffers are not kept across a call into Python.

use std::io;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::state::{Held, Stream_};
use crate::ffi::{self, IntoObject as _, Obj, Raise as _, intern};
use crate::transport::base::{call_protocol, fatal_error};
use crate::transport::socket::Wish;

/// Copies bytes into the buffers of a `BufferedProtocol`, as many as it takes; returns the rest.
pub(super) fn deliver_into_protocol(
    this: Stream_<'_, '_>,
    mut bytes: Held,
) -> (PyResult<()>, Option<Held>) {
    while !bytes.rest(this.py()).is_empty() {
        if this.read.wish.get() != Wish::Read || !this.read.is_buffered() {
            return (Ok(()), Some(bytes));
        }
        match fill_once(this, &mut bytes) {
            Ok(true) => {}
            // The connection has ended.
            Ok(false) => break,
            Err(error) => {
                let is_left = !bytes.rest(this.py()).is_empty();
                return (Err(error), is_left.then_some(bytes));
            }
        }
    }
    (Ok(()), None)
}

/// Fills one buffer of the protocol; `false`: the connection has ended.
fn fill_once(this: Stream_<'_, '_>, bytes: &mut Held) -> PyResult<bool> {
    let py = this.py();
    let Some(buffer) = get_buffer(this)? else {
        return Ok(false);
    };
    let filled = ffi::fill(buffer.bind(py).as_borrowed(), bytes.rest(py));
    drop(buffer);
    match filled {
        Ok(0) => empty_buffer(this).map(|()| false),
        Ok(count) => {
            bytes.taken_len += count;
            buffer_updated(this, count).map(|()| true)
        }
        Err(error) => get_buffer_failed(this, error).map(|()| false),
    }
}

/// Receives directly into a `BufferedProtocol`'s buffer; `None`: the connection has ended.
pub(super) fn receive_into_protocol(this: Stream_<'_, '_>) -> PyResult<Option<io::Result<usize>>> {
    let Some(buffer) = get_buffer(this)? else {
        return Ok(None);
    };
    let received =
        ffi::receive_into(buffer.bind(this.py()).as_borrowed(), this.socket.fd(this.py()));
    drop(buffer);
    match received {
        Err(error) => get_buffer_failed(this, error).map(|()| None),
        Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
            empty_buffer(this).map(|()| None)
        }
        Ok(Ok(count)) if count > 0 => {
            buffer_updated(this, count)?;
            Ok(Some(Ok(count)))
        }
        Ok(result) => Ok(Some(result)),
    }
}

fn get_buffer(this: Stream_<'_, '_>) -> PyResult<Option<Obj>> {
    // As in asyncio: no hint.
    let hint: Obj = (-1_i32).into_object(this.py())?.into();
    match call_protocol(this, intern!(this.py(), "get_buffer"), Some(&hint)) {
        Ok(buffer) => Ok(buffer),
        Err(error) => get_buffer_failed(this, error).map(|()| None),
    }
}

fn get_buffer_failed(this: Stream_<'_, '_>, error: PyErr) -> PyResult<()> {
    fatal_error(this, error, "Fatal error: protocol.get_buffer() call failed.")
}

fn empty_buffer(this: Stream_<'_, '_>) -> PyResult<()> {
    let error = PyRuntimeError::raise("get_buffer() returned an empty buffer");
    get_buffer_failed(this, error)
}

fn buffer_updated(this: Stream_<'_, '_>, count: usize) -> PyResult<()> {
    let py = this.py();
    let told = count
        .into_object(py)
        .and_then(|count| call_protocol(this, intern!(py, "buffer_updated"), Some(&count.into())));
    match told {
        Ok(_) => Ok(()),
        Err(error) => buffer_updated_failed(this, error),
    }
}

pub(super) fn buffer_updated_failed(this: Stream_<'_, '_>, error: PyErr) -> PyResult<()> {
    fatal_error(this, error, "Fatal error: protocol.buffer_updated() call failed.")
}
