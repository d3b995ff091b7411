//! Use of a transport from another thread than its loop's.
//!
//! asyncio sends in the calling thread and does not notice. Here the state of a connection belongs
//! to the loop thread, so the call is passed to it and made there, in the order of the thread's
//! calls; debug mode reports the misuse.
//!
//! Owns: [`Owner`]. Called by: methods of all transports, if `is_elsewhere`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::PyString;
use ringloop::buf::SendBuf;

use crate::event_loop::{LoopCore, Shared};
use crate::ffi::{self, ObjCell, Payload, This, Visited, Visitor, intern};

/// The loop of a transport, and the thread that runs it.
pub(crate) struct Owner {
    /// Cleared only by the collector.
    loop_: ObjCell,
    shared: Arc<Shared>,
    /// A call that closes was passed on.
    closes: Cell<bool>,
    /// Calls of `pause_reading` and `resume_reading` that were passed on and not made yet.
    reading_calls: Cell<u32>,
    /// The last of them pauses.
    pauses: Cell<bool>,
}

/// Effect of a call that was passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Closing,
    /// Paused or not.
    Reading(bool),
    /// Nothing observable.
    Other,
}

impl Owner {
    pub fn new(loop_: &Bound<'_, LoopCore>) -> Self {
        Self {
            loop_: ObjCell::new(Some(loop_.clone().into_any().into())),
            shared: loop_.get().shared(),
            closes: Cell::new(false),
            reading_calls: Cell::new(0),
            pauses: Cell::new(false),
        }
    }

    pub fn loop_<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.loop_.get_or_none(py)
    }

    pub fn core<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, LoopCore>> {
        Ok(self.loop_.get_or_none(py).cast_into::<LoopCore>()?)
    }

    /// Counts bytes for the loop's metrics.
    #[inline]
    pub fn received(&self, bytes: usize) {
        self.shared.received_bytes.add(bytes as u64);
    }

    /// The number of the running turn.
    #[inline]
    pub fn turn(&self) -> u64 {
        self.shared.turns.count()
    }

    /// As [`Owner::received`].
    #[inline]
    pub fn sent(&self, bytes: usize) {
        self.shared.sent_bytes.add(bytes as u64);
    }

    #[inline]
    pub fn is_running(&self) -> bool {
        self.shared.thread_id.load(Relaxed) != 0
    }

    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        let running = self.shared.thread_id.load(Relaxed);
        running != 0 && running != ffi::thread_id()
    }

    /// Whether a call that closes was passed on: asyncio, which makes it at once, is closing then.
    pub fn will_close(&self) -> bool {
        self.closes.get()
    }

    /// Whether reading is paused once the passed-on calls are made; `is_paused` if there are none.
    pub fn will_pause(&self, is_paused: bool) -> bool {
        if self.reading_calls.get() == 0 { is_paused } else { self.pauses.get() }
    }

    /// `pause_reading` or `resume_reading` is called in the loop's thread.
    pub fn reading_called(&self) {
        let calls = self.reading_calls.get();
        self.reading_calls.set(calls.saturating_sub(1));
    }

    fn note(&self, change: Change) {
        match change {
            Change::Closing => self.closes.set(true),
            Change::Reading(pauses) => {
                self.reading_calls.set(self.reading_calls.get() + 1);
                self.pauses.set(pauses);
            }
            Change::Other => {}
        }
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.loop_.visit(visitor)
    }
}

/// A transport that belongs to a loop.
pub(crate) trait Owned: Payload {
    fn owner(&self) -> &Owner;
}

/// Makes the loop call a method without arguments, with this effect.
#[cold]
fn hand_over<T: Owned>(
    this: This<'_, '_, T>,
    method: &Bound<'_, PyString>,
    change: Change,
) -> PyResult<()> {
    let method = this.object().getattr(method)?;
    // Before the call, which the loop may make while this thread waits.
    let owner = this.owner();
    let before = (owner.closes.get(), owner.pauses.get());
    owner.note(change);
    let handed_over = call_in_loop(this, (method,));
    if handed_over.is_err() {
        owner.closes.set(before.0);
        owner.pauses.set(before.1);
        if let Change::Reading(_) = change {
            owner.reading_called();
        }
    }
    handed_over
}

/// Runs `body` in the loop's thread: in another one, the loop is made to call `method`.
pub(crate) fn in_loop<'a, 'py, T: Owned>(
    this: This<'a, 'py, T>,
    method: &Bound<'py, PyString>,
    change: Change,
    body: impl FnOnce(This<'a, 'py, T>) -> PyResult<()>,
) -> PyResult<()> {
    if this.owner().is_elsewhere() {
        return hand_over(this, method, change);
    }
    body(this)
}

/// Makes the loop write these bytes.
#[cold]
pub(crate) fn hand_over_bytes<T: Owned>(this: This<'_, '_, T>, bufs: &[SendBuf]) -> PyResult<()> {
    let py = this.py();
    let bytes: Vec<u8> = bufs.iter().flat_map(SendBuf::as_slice).copied().collect();
    let write = this.object().getattr(intern!(py, "write"))?;
    call_in_loop(this, (write, ffi::new_bytes(py, &bytes)?))
}

/// `call_soon_threadsafe`; in debug mode, the error that `call_soon` would raise.
#[cold]
pub(crate) fn call_in_loop<'py, T: Owned>(
    this: This<'_, 'py, T>,
    arguments: impl PyCallArgs<'py>,
) -> PyResult<()> {
    let py = this.py();
    let loop_ = this.owner().core(py)?;
    if loop_.get().debug() {
        loop_.call_method0(intern!(py, "_check_thread"))?;
    }
    loop_.call_method1(intern!(py, "call_soon_threadsafe"), arguments).map(drop)
}
