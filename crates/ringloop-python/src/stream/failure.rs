//! A send that failed in the loop, not in a call of the application.
//!
//! Owns: the order in which a failure ends a connection. Called by: the module's root, with what
//! [`write`] found, and after [`read`] has ended a receive.
//!
//! The peer may have answered before it closed, and asyncio reads before it writes. So a failure
//! waits for a receive in flight, which may have taken bytes, and what arrived is delivered first.

use pyo3::prelude::*;
use ringloop::embed::sys::libc;

use super::state::Stream_;
use super::{read, write};

/// Ends the connection with the errno of a send that failed, if there is one.
pub(super) fn note(this: Stream_<'_, '_>, found: PyResult<Option<i32>>) -> PyResult<()> {
    let Some(errno) = found? else {
        return Ok(());
    };
    if !matches!(errno, libc::EPIPE | libc::ECONNRESET) {
        return write::failed(this, errno);
    }
    this.write.took_reset.set(errno == libc::ECONNRESET);
    let started = read::start(this);
    if read::is_receiving(this) {
        this.write.failure.set(Some(errno));
        return started.and(read::disarm(this));
    }
    started.and(read_and_fail(this, errno))
}

/// Ends the connection if a failure has waited for the receive that has ended.
pub(super) fn report(this: Stream_<'_, '_>) -> PyResult<()> {
    match this.write.failure.take() {
        Some(errno) => read_and_fail(this, errno),
        None => Ok(()),
    }
}

fn read_and_fail(this: Stream_<'_, '_>, errno: i32) -> PyResult<()> {
    let read = read::read_last(this);
    let ended = if this.base.is_lost() { Ok(()) } else { write::failed(this, errno) };
    read.and(ended)
}
