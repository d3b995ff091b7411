//! Flow control of the writing side: when the protocol is told to pause and to resume.
//!
//! Owns: the water marks and whether the protocol is paused. Called by: `write` after every change of
//! the queue, and by `methods`. Never does: look at the queue itself; it is told the size.
//! Source: `asyncio.transports._FlowControlMixin`.

use std::cell::Cell;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{Stream_, call_protocol, leaves_the_loop};
use crate::ffi;
use crate::limits;

/// Water marks in bytes, and the protocol's state.
pub(super) struct Flow {
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

/// Tell the protocol to stop writing when `size` bytes are too many.
pub(super) fn maybe_pause(this: Stream_<'_, '_>, size: usize) -> PyResult<()> {
    if !this.flow.above_high(size) || this.flow.paused.replace(true) {
        return Ok(());
    }
    // In the writer's own context: it is the one that is running.
    let py = this.py();
    let told = match this.protocol.get(py) {
        Some(protocol) => {
            ffi::call_method(py, intern!(py, "pause_writing"), &[&protocol]).map(drop)
        }
        None => Ok(()),
    };
    report(this, told, "protocol.pause_writing() failed")
}

/// Tell the protocol to go on when `size` bytes are few enough.
pub(super) fn maybe_resume(this: Stream_<'_, '_>, size: usize) -> PyResult<()> {
    if size > this.flow.low.get() || !this.flow.paused.replace(false) {
        return Ok(());
    }
    let told = call_protocol(this, intern!(this.py(), "resume_writing"), None).map(drop);
    report(this, told, "protocol.resume_writing() failed")
}

/// Errors of these two callbacks are reported and do not end the connection.
fn report(this: Stream_<'_, '_>, told: PyResult<()>, message: &str) -> PyResult<()> {
    let py = this.py();
    let Err(error) = told else { return Ok(()) };
    if leaves_the_loop(py, &error) {
        return Err(error);
    }
    let context = PyDict::new(py);
    context.set_item("message", message)?;
    context.set_item("exception", error.into_value(py))?;
    context.set_item("transport", this.object())?;
    context.set_item("protocol", this.protocol.get_or_none(py))?;
    this.loop_
        .get_or_none(py)
        .call_method1(intern!(py, "call_exception_handler"), (context,))?;
    Ok(())
}
