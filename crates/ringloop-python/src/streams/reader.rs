//! The state of a reader: what a transport, or anyone else, feeds, and the wait for it.
//!
//! Owns: [`Reader`], the core of `StreamReader`. Called by: `protocol` (bytes of native transports), `methods`
//! (everything that Python calls), `reading` (the coroutines that wait).
//!
//! Source: `asyncio.streams.StreamReader`. Rare methods are inherited; they find the state behind its
//! attributes.

use std::cell::Cell;
use std::ffi::CStr;

use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;

use super::buffer::Buffer;
use crate::ffi::{
    self, Core, Definition, Obj, ObjCell, Payload, Shell, ShellRef, This, intern, payload,
};
use crate::stream::native;

/// One reader.
#[derive(Default)]
pub struct Reader {
    pub(super) buffer: Buffer,
    pub(super) limit: Cell<usize>,
    /// The limit as it was given.
    pub(super) limit_object: ObjCell,
    pub(super) eof: Cell<bool>,
    /// The transport was told not to read.
    pub(super) paused: Cell<bool>,
    /// The future of the coroutine that waits for bytes.
    pub(super) waiter: ObjCell,
    pub(super) exception: ObjCell,
    pub(super) transport: ObjCell,
    pub(super) loop_: ObjCell,
    /// What was assigned to `feed_data` of this one.
    pub(super) feeder: ObjCell,
}

pub(super) type Reader_<'a, 'py> = This<'a, 'py, Reader>;
pub(super) type ReaderShell<'a, 'py> = ShellRef<'a, 'py, Reader>;

impl Payload for Reader {
    const NAME: &'static CStr = c"ringloop._native.StreamReaderCore";
    const DOC: &'static CStr = c"The state of a StreamReader.";
    payload!(Reader; define define;
        visit limit_object, waiter, exception, transport, loop_, feeder;
        clear limit_object, waiter, exception, transport, loop_, feeder, buffer);
}

impl Core for Reader {
    fn shell() -> &'static Shell<Self> {
        static SHELL: Shell<Reader> = Shell::new();
        &SHELL
    }

    fn new() -> Self {
        Self::default()
    }
}

fn define(_type: &mut Definition<Reader>) {}

/// Takes bytes in, an exact `bytes`, not empty: wakes the call that waits for them, and pauses the transport if they
/// are too many.
pub(super) fn feed(this: Reader_<'_, '_>, bytes: Obj) -> PyResult<()> {
    let py = this.py();
    this.buffer.push(py, bytes)?;
    if this.buffer.is_filling() {
        // The call that waits wants more.
        return Ok(());
    }
    wake(this)?;
    if this.paused.get()
        || this.buffer.len(py) <= this.limit.get().saturating_mul(2)
        || !this.transport.is_some()
    {
        return Ok(());
    }
    let transport = this.transport.get_or_none(py);
    match native::set_reading(&transport, false) {
        Ok(true) => {}
        Ok(false) => match transport.call_method0(intern!(py, "pause_reading")) {
            Ok(_) => {}
            Err(error) if error.is_instance_of::<PyNotImplementedError>(py) => {
                // It cannot be paused, and is not asked again.
                drop(this.transport.take());
                return Ok(());
            }
            Err(error) => return Err(error),
        },
        Err(error) => return Err(error),
    }
    this.paused.set(true);
    Ok(())
}

/// The end of the stream.
pub(super) fn feed_eof(this: Reader_<'_, '_>) -> PyResult<()> {
    this.eof.set(true);
    this.buffer.stop_filling(this.py())?;
    wake(this)
}

/// What every later read raises.
pub(super) fn set_exception(this: Reader_<'_, '_>, exception: Obj) -> PyResult<()> {
    let py = this.py();
    drop(this.exception.replace(Some(exception.clone_ref(py))));
    this.buffer.stop_filling(py)?;
    let Some(waiter) = this.waiter.take() else {
        return Ok(());
    };
    if ffi::call_method(py, intern!(py, "cancelled"), &[&waiter])?.bind(py).is_truthy()? {
        return Ok(());
    }
    ffi::call_method(py, intern!(py, "set_exception"), &[&waiter, &exception]).map(drop)
}

/// Wakes the coroutine that waits.
pub(super) fn wake(this: Reader_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let Some(waiter) = this.waiter.take() else {
        return Ok(());
    };
    let none = py.None().into_bound(py).into();
    let Err(error) = ffi::call_method(py, intern!(py, "set_result"), &[&waiter, &none]) else {
        return Ok(());
    };
    // A cancelled one is no error; this is rare, and asking first would cost a call each time.
    if ffi::call_method(py, intern!(py, "cancelled"), &[&waiter])?.bind(py).is_truthy()? {
        return Ok(());
    }
    Err(error)
}

/// Lets the transport read again once enough was taken.
pub(super) fn maybe_resume(this: Reader_<'_, '_>) -> PyResult<()> {
    if !this.paused.get() || this.buffer.len(this.py()) > this.limit.get() {
        return Ok(());
    }
    resume(this)
}

/// Lets the transport read again.
pub(super) fn resume(this: Reader_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    this.paused.set(false);
    let transport = this.transport.get_or_none(py);
    if !native::set_reading(&transport, true)? {
        transport.call_method0(intern!(py, "resume_reading"))?;
    }
    Ok(())
}
