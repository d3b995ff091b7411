//! A `BufferedProtocol`: its own buffer is asked for, filled, and given back.
//!
//! Called by: `read`. Never does: decide when to read, or keep a buffer across a call into Python.

use std::io;

use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;

use super::super::{Stream_, call_protocol, lifecycle};
use super::{Wish, deliver, disarm, schedule_delivery};
use crate::ffi::{self, Obj};

/// Copy bytes into the buffers of a `BufferedProtocol`, as many as it takes.
pub(super) fn deliver_into_protocol(this: Stream_<'_, '_>, bytes: Obj) -> PyResult<()> {
    let py = this.py();
    let mut done = 0;
    let len = ffi::bytes_len(&bytes);
    while done < len {
        if this.read.wish.get() != Wish::Read || !this.read.is_buffered() {
            // Paused, closed or given to another protocol in the middle of it.
            let rest = ffi::copy_bytes(py, ffi::bytes_from(py, &bytes, done));
            if this.read.wish.get() == Wish::Read {
                return deliver(this, rest);
            }
            if this.read.wish.get() == Wish::Pause {
                this.read.held.borrow_mut().push_front(rest);
                return disarm(this);
            }
            return Ok(());
        }
        let Some(buffer) = get_buffer(this)? else {
            return Ok(());
        };
        let filled = ffi::fill(
            buffer.bind(py).as_borrowed(),
            ffi::bytes_from(py, &bytes, done),
        );
        drop(buffer);
        let count = match filled {
            Ok(0) => return empty_buffer(this),
            Ok(count) => count,
            Err(error) => return get_buffer_failed(this, error),
        };
        done += count;
        if let Err(error) = buffer_updated(this, count) {
            if done < len && this.read.wish.get() != Wish::Stop {
                // It leaves the loop; the rest is for the next run.
                let rest = ffi::copy_bytes(py, ffi::bytes_from(py, &bytes, done));
                this.read.held.borrow_mut().push_front(rest);
                schedule_delivery(this)?;
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Receive straight into a `BufferedProtocol`'s buffer; `None`: the connection has ended.
pub(super) fn receive_into_protocol(this: Stream_<'_, '_>) -> PyResult<Option<io::Result<usize>>> {
    let Some(buffer) = get_buffer(this)? else {
        return Ok(None);
    };
    let received = ffi::receive_into(buffer.bind(this.py()).as_borrowed(), this.fd(this.py()));
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
    // As asyncio: no hint.
    let hint: Obj = (-1_i32).into_pyobject(this.py())?.into();
    match call_protocol(this, intern!(this.py(), "get_buffer"), Some(&hint)) {
        Ok(buffer) => Ok(buffer),
        Err(error) => get_buffer_failed(this, error).map(|()| None),
    }
}

fn get_buffer_failed(this: Stream_<'_, '_>, error: PyErr) -> PyResult<()> {
    lifecycle::fatal_error(
        this,
        error,
        "Fatal error: protocol.get_buffer() call failed.",
    )
}

fn empty_buffer(this: Stream_<'_, '_>) -> PyResult<()> {
    let error = PyRuntimeError::new_err("get_buffer() returned an empty buffer");
    get_buffer_failed(this, error)
}

fn buffer_updated(this: Stream_<'_, '_>, count: usize) -> PyResult<()> {
    let argument: Obj = count.into_pyobject(this.py())?.into();
    match call_protocol(this, intern!(this.py(), "buffer_updated"), Some(&argument)) {
        Ok(_) => Ok(()),
        Err(error) => buffer_updated_failed(this, error),
    }
}

pub(in super::super) fn buffer_updated_failed(this: Stream_<'_, '_>, error: PyErr) -> PyResult<()> {
    lifecycle::fatal_error(
        this,
        error,
        "Fatal error: protocol.buffer_updated() call failed.",
    )
}
