//! Flow control of the writing side: when the protocol is told to pause and to resume.
//!
//! Owns: the water marks and whether the protocol is paused. Called by: `write` after every change of
//! the queue, and by `methods`, of streams, datagram endpoints and pipes. Never does: look at the queue
//! itself; it is told the size.
//! Source: `asyncio.transports._FlowControlMixin`.

use std::cell::Cell;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{Endpoint, Writable, call_protocol, leaves_the_loop, tell};
use crate::ffi::{Args, This};
use crate::limits;

/// Water marks in bytes, and the protocol's state.
pub(crate) struct Flow {
    high: Cell<usize>,
    low: Cell<usize>,
    paused: Cell<bool>,
}

impl Flow {
    pub fn new() -> Self {
        Self {
            high: Cell::new(limits::WRITE_HIGH_WATER),
            low: Cell::new(limits::WRITE_HIGH_WATER / 4),
            paused: Cell::new(false),
        }
    }

    pub fn limits(&self) -> (usize, usize) {
        (self.low.get(), self.high.get())
    }

    /// Take new marks; missing ones follow from the other.
    pub fn set_limits(&self, high: Option<usize>, low: Option<usize>) -> PyResult<()> {
        let high = high.unwrap_or_else(|| match low {
            Some(low) => low.saturating_mul(4),
            None => limits::WRITE_HIGH_WATER,
        });
        let low = low.unwrap_or(high / 4);
        if high < low {
            return Err(PyValueError::new_err(format!(
                "high ({high}) must be >= low ({low}) must be >= 0"
            )));
        }
        self.high.set(high);
        self.low.set(low);
        Ok(())
    }

    pub fn is_paused(&self) -> bool {
        self.paused.get()
    }

    pub fn above_high(&self, size: usize) -> bool {
        size > self.high.get()
    }
}

/// `set_write_buffer_limits(high=None, low=None)`: its arguments, high before low.
pub(crate) fn limits_of(args: Args<'_, '_>) -> PyResult<[Option<usize>; 2]> {
    let mut marks = [None, None];
    let given = high_and_low(args, "set_write_buffer_limits")?;
    for (mark, value) in marks.iter_mut().zip(given) {
        let Some(value) = value else { continue };
        *mark = Some(usize::try_from(value).map_err(|_| {
            PyValueError::new_err(format!("high and low must be >= 0, not {value}"))
        })?);
    }
    Ok(marks)
}

/// The arguments of `function(high=None, low=None)`.
pub(crate) fn high_and_low(args: Args<'_, '_>, function: &str) -> PyResult<[Option<i64>; 2]> {
    if args.len() > 2 {
        return Err(PyTypeError::new_err(format!(
            "{function}() takes at most 2 arguments, but {} were given",
            args.len()
        )));
    }
    let mut values = [args.get(0), args.get(1)];
    for (name, value) in args.keywords() {
        match name.extract::<std::borrow::Cow<'_, str>>()?.as_ref() {
            "high" => values[0] = Some(value),
            "low" => values[1] = Some(value),
            other => {
                return Err(PyTypeError::new_err(format!(
                    "{function}() got an unexpected keyword argument '{other}'"
                )));
            }
        }
    }
    let mut marks = [None, None];
    for (mark, value) in marks.iter_mut().zip(values) {
        if let Some(value) = value.filter(|value| !value.is_none()) {
            *mark = Some(value.extract()?);
        }
    }
    Ok(marks)
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
    if size > this.flow().low.get() || !this.flow().paused.replace(false) {
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
    let context = PyDict::new(py);
    context.set_item("message", message)?;
    context.set_item("exception", error.into_value(py))?;
    context.set_item("transport", this.object())?;
    context.set_item("protocol", this.protocol().get_or_none(py))?;
    this.loop_()
        .get_or_none(py)
        .call_method1(intern!(py, "call_exception_handler"), (context,))?;
    Ok(())
}
