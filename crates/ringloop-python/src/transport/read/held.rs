//! Received bytes that the protocol has not taken, because reading is paused, or because an
//! exception left the loop.
//!
//! Owns: their order, and the step of the loop that delivers them. Called by: `read`, which
//! receives nothing while bytes are held.

use pyo3::prelude::*;

use super::super::base::call_soon;
use super::super::socket::Wish;
use super::super::{Stream, Stream_, socket};
use super::{arm, deliver, disarm, ended};
use crate::ffi::{self, Obj, Payload, intern};

/// Whether a step to deliver held bytes is scheduled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Delivery {
    #[default]
    None,
    Scheduled,
    /// Scheduled when an exception left the loop: it runs after what is ready in the next run, like
    /// the results of asyncio's selector.
    Postponed,
}

/// One object with held bytes.
pub(super) struct Held {
    bytes: Obj,
    /// How many of them the protocol has taken.
    pub taken_len: usize,
}

impl From<Obj> for Held {
    fn from(bytes: Obj) -> Self {
        Self { bytes, taken_len: 0 }
    }
}

impl Held {
    pub fn rest<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        ffi::bytes_from(py, &self.bytes, self.taken_len)
    }

    /// The rest as one object.
    pub fn into_bytes(self, py: Python<'_>) -> PyResult<Obj> {
        if self.taken_len == 0 {
            return Ok(self.bytes);
        }
        ffi::copy_bytes(py, self.rest(py))
    }
}

/// Whether there are held bytes, or an unreported end of the stream.
pub(super) fn holds(this: Stream_<'_, '_>) -> bool {
    this.read.held_end.get().is_some() || !this.read.held.borrow().is_empty()
}

/// Holds the oldest bytes, which the protocol has not taken, before all others: until reading is
/// resumed, or until the next run of the loop, which an exception is about to leave.
pub(super) fn keep(this: Stream_<'_, '_>, bytes: Held) -> PyResult<()> {
    let wish = this.read.wish.get();
    if wish == Wish::Stop {
        return Ok(());
    }
    this.read.held.borrow_mut().push_front(bytes);
    if wish == Wish::Read { postpone_delivery(this) } else { disarm(this) }
}

/// Delivers in the next pass, like asyncio's next iteration.
pub(super) fn schedule_delivery(this: Stream_<'_, '_>) -> PyResult<()> {
    deliver_later(this, Delivery::Scheduled)
}

/// As [`schedule_delivery`], for the next run.
pub(super) fn postpone_delivery(this: Stream_<'_, '_>) -> PyResult<()> {
    deliver_later(this, Delivery::Postponed)
}

fn deliver_later(this: Stream_<'_, '_>, delivery: Delivery) -> PyResult<()> {
    if this.read.delivery.replace(delivery) != Delivery::None {
        return Ok(());
    }
    call_soon(this, intern!(this.py(), "_deliver_held"), |object, _| {
        Stream::native().with(object, deliver_held)
    })
}

/// Delivers what arrived during a pause, then continues reading.
pub(in super::super) fn deliver_held(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.read.delivery.replace(Delivery::None) == Delivery::Postponed {
        return schedule_delivery(this);
    }
    while this.read.wish.get() == Wish::Read {
        let next = this.read.held.borrow_mut().pop_front();
        if let Some(bytes) = next {
            let delivered = deliver_one(this, bytes);
            if delivered.is_err() {
                // An exception leaves the loop: the rest, and later bytes, are for the next run.
                let again = if holds(this) { postpone_delivery(this) } else { arm(this) };
                return delivered.and(again);
            }
            continue;
        }
        return match this.read.held_end.take() {
            Some(end) => {
                let told = ended(this, end);
                told.and(socket::rest_if_idle(this))
            }
            None => arm(this),
        };
    }
    Ok(())
}

/// As `deliver`, for the oldest held bytes.
fn deliver_one(this: Stream_<'_, '_>, bytes: Held) -> PyResult<()> {
    let rest = this.read.held.take();
    let end = this.read.held_end.take();
    let result = deliver(this, bytes);
    if this.read.wish.get() == Wish::Stop {
        return result;
    }
    // Later bytes go after what a pause meanwhile may have put back.
    this.read.held.borrow_mut().extend(rest);
    if end.is_some() {
        this.read.held_end.set(end);
    }
    result
}
