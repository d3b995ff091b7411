//! Flow control of the writing side: when the protocol is paused and resumed.
//!
//! Owns: the water marks and whether the protocol is paused. Called by: the writing side of
//! streams, datagram endpoints and pipes after every change of the queue, TLS in both directions, and
//! user code (the members of [`define`]). The queue's size is passed in.
//! Source: `asyncio.transports._FlowControlMixin`.

use std::cell::Cell;

use pyo3::prelude::*;

use super::base::{self, Endpoint, call_protocol, call_protocol_here};
use super::marks::{self, Marks};
use super::thread::{self, Change};
use crate::ffi::{Argument, Definition, This, Visited, Visitor, intern, members};
use crate::limits;

/// Water marks, and whether the protocol is paused.
pub(crate) struct Flow {
    pub marks: Marks,
    paused: Cell<bool>,
}

impl Flow {
    pub fn new(high: usize) -> Self {
        Self { marks: Marks::new(high), paused: Cell::new(false) }
    }

    pub fn is_paused(&self) -> bool {
        self.paused.get()
    }

    pub fn above_high(&self, size: usize) -> bool {
        self.marks.is_above(size)
    }

    /// Whether `size` bytes begin a pause.
    pub fn pauses(&self, size: usize) -> bool {
        self.above_high(size) && !self.paused.replace(true)
    }

    /// As [`Flow::pauses`]; the high mark itself is too much.
    pub fn pauses_at(&self, size: usize) -> bool {
        self.marks.is_reached(size) && !self.paused.replace(true)
    }

    /// Whether `size` bytes end a pause.
    pub fn resumes(&self, size: usize) -> bool {
        self.marks.is_low(size) && self.paused.replace(false)
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.marks.visit(visitor)
    }
}

/// A writable endpoint.
pub(crate) trait Writable: Endpoint {
    fn flow(&self) -> &Flow;
    /// Queued bytes.
    fn size(&self) -> usize;
    /// As [`Writable::size`], minus what the kernel accepts now.
    fn unsent(this: This<'_, '_, Self>) -> PyResult<usize> {
        Ok(this.size())
    }
}

/// Lists the members of writable endpoints.
pub(crate) fn define<T: Writable>(type_: &mut Definition<T>) {
    members!(type_, T: Writable;
        abort() => abort, "Close now; what was not sent is lost.";
        get_write_buffer_size() => unsent, "Return how many bytes wait to be sent.";
        get_write_buffer_limits() => |this| this.flow().marks.to_python(this.py()), "Return the low and high water marks, in bytes.";
        set_write_buffer_limits(high=None, low=None) => set_write_buffer_limits, "Set the water marks, in bytes.";
        get _conn_lost => |this| u64::from(this.base().lost_writes.get()), "Writes since the connection was lost.";
        get _protocol_paused => |this| this.flow().is_paused(), "Whether the protocol was told to stop writing.";
    );
}

fn abort<T: Writable>(this: This<'_, '_, T>) -> PyResult<()> {
    let name = intern!(this.py(), "abort");
    thread::in_loop(this, name, Change::Closing, |this| T::force_close(this, None))
}

fn unsent<T: Writable>(this: This<'_, '_, T>) -> PyResult<usize> {
    if this.base().is_elsewhere() {
        return Ok(this.size());
    }
    T::unsent(this)
}

fn set_write_buffer_limits<T: Writable>(
    this: This<'_, '_, T>,
    high: Option<Argument<'_, '_>>,
    low: Option<Argument<'_, '_>>,
) -> PyResult<()> {
    let given = marks::given("set_write_buffer_limits", high, low)?;
    this.flow().marks.set(this.py(), given, limits::WRITE_HIGH_WATER)?;
    // Gathered data is no reason to pause: nothing in flight would end the pause.
    maybe_pause(this, unsent(this)?)
}

/// Pauses the protocol if `size` bytes are too many.
pub(crate) fn maybe_pause<T: Writable>(this: This<'_, '_, T>, size: usize) -> PyResult<()> {
    if !this.flow().pauses(size) {
        return Ok(());
    }
    // In the writer's context, which is current.
    let told = call_protocol_here(this, intern!(this.py(), "pause_writing"), None);
    report(this, told, "protocol.pause_writing() failed")
}

/// Resumes the protocol if `size` bytes are few enough.
pub(crate) fn maybe_resume<T: Writable>(this: This<'_, '_, T>, size: usize) -> PyResult<()> {
    if !this.flow().resumes(size) {
        return Ok(());
    }
    let told = call_protocol(this, intern!(this.py(), "resume_writing"), None).map(drop);
    report(this, told, "protocol.resume_writing() failed")
}

/// Errors of these callbacks are reported and do not end the connection.
fn report<T: Writable>(this: This<'_, '_, T>, told: PyResult<()>, message: &str) -> PyResult<()> {
    base::report(this, told, || Ok(message.to_owned()))
}
