//! Flow control of the writing side: when the protocol is told to pause and to resume.
//!
//! Owns: the water marks and whether the protocol is paused. Called by: `write` after every change of
//! the queue, and by `methods`, of streams, datagram endpoints and pipes. Never does: look at the queue
//! itself; it is told the size.
//! Source: `asyncio.transports._FlowControlMixin`.

use std::cell::Cell;

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;

use super::marks::{Marks, high_and_low};
use super::{Endpoint, Writable, call_protocol, leaves_the_loop, tell};
use crate::event_loop::exceptions;
use crate::ffi::{self, Args, Fallible, This, Visited, Visitor, intern};
use crate::limits;

/// Water marks, and the protocol's state.
pub(crate) struct Flow {
    marks: Marks,
    paused: Cell<bool>,
}

impl Flow {
    pub fn new() -> Self {
        Self {
            marks: Marks::new(limits::WRITE_HIGH_WATER),
            paused: Cell::new(false),
        }
    }

    /// `get_write_buffer_limits()`.
    pub fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.marks.to_python(py)
    }

    /// `set_write_buffer_limits(high=None, low=None)`.
    pub fn set_limits(&self, py: Python<'_>, args: Args<'_, '_>) -> PyResult<()> {
        let given = high_and_low(args, "set_write_buffer_limits")?;
        self.marks.set(py, given, limits::WRITE_HIGH_WATER)
    }

    pub fn is_paused(&self) -> bool {
        self.paused.get()
    }

    pub fn above_high(&self, size: usize) -> bool {
        self.marks.is_above(size)
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.marks.visit(visitor)
    }
}

/// Tell the protocol to stop writing when `size` bytes are too many.
pub(crate) fn maybe_pause<T: Writable>(this: This<'_, '_, T>, size: usize) -> PyResult<()> {
    if !this.flow().above_high(size) || this.flow().paused.replace(true) {
        return Ok(());
    }
    // In the writer's own context: it is the one that is running.
    let py = this.py();
    let told = match this.protocol().get(py) {
        Some(protocol) => tell(this, &protocol, intern!(py, "pause_writing"), None).map(drop),
        None => Ok(()),
    };
    report(this, told, "protocol.pause_writing() failed")
}

/// Tell the protocol to go on when `size` bytes are few enough.
pub(crate) fn maybe_resume<T: Writable>(this: This<'_, '_, T>, size: usize) -> PyResult<()> {
    if !this.flow().marks.is_low(size) || !this.flow().paused.replace(false) {
        return Ok(());
    }
    let told = call_protocol(this, intern!(this.py(), "resume_writing"), None).map(drop);
    report(this, told, "protocol.resume_writing() failed")
}

/// Errors of these callbacks are reported and do not end the connection.
pub(crate) fn report<T: Endpoint>(
    this: This<'_, '_, T>,
    told: PyResult<()>,
    message: &str,
) -> PyResult<()> {
    let py = this.py();
    let Err(error) = told else { return Ok(()) };
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let exception = error.into_value(py).into_bound(py);
    let reported = report_exception(this, &exception, message);
    exceptions::contained(exception, reported)
}

fn report_exception<T: Endpoint>(
    this: This<'_, '_, T>,
    exception: &Bound<'_, PyBaseException>,
    message: &str,
) -> PyResult<()> {
    let py = this.py();
    let context = ffi::new_dict(py)?;
    context.set_item(intern!(py, "message"), Fallible(message))?;
    context.set_item(intern!(py, "exception"), exception)?;
    context.set_item(intern!(py, "transport"), this.object())?;
    context.set_item(intern!(py, "protocol"), this.protocol().get_or_none(py))?;
    this.loop_()
        .get_or_none(py)
        .call_method1(intern!(py, "call_exception_handler"), (context,))?;
    Ok(())
}
