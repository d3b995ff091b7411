//! How an endpoint ends: what of [`base`]'s way is its own.
//!
//! Called by: every part of the endpoint. Never does: send or receive.

use pyo3::prelude::*;

use super::{Datagram_, read, write};
use crate::error;
use crate::ffi::Obj;
use crate::transport::base::{self, State, fatal_error};
use crate::transport::socket;

/// Close once everything queued is sent.
pub(super) fn close(this: Datagram_<'_, '_>) -> PyResult<()> {
    if this.base.is_closing() {
        return Ok(());
    }
    this.base.state.set(State::Closing);
    read::stop(this)?;
    let sent = write::send_gathered(this);
    let lost = if this.write.is_blocked() {
        Ok(())
    } else {
        this.write.discard();
        lose(this, None)
    };
    sent.and(lost)
}

/// Close now; what was not sent is dropped.
pub(super) fn force_close(this: Datagram_<'_, '_>, error: Option<Obj>) -> PyResult<()> {
    if this.base.is_lost() {
        return Ok(());
    }
    // asyncio has sent it by now.
    let sent = write::send_gathered(this);
    this.write.discard();
    socket::disarm(this, this.write.armed())?;
    if this.base.state.get() == State::Open {
        this.base.state.set(State::Closing);
        read::stop(this)?;
    }
    sent.and(lose(this, error))
}

/// Everything is sent, or dropped: schedule `connection_lost`.
pub(super) fn lose(this: Datagram_<'_, '_>, error: Option<Obj>) -> PyResult<()> {
    if !this.base.is_lost() {
        this.base.count_lost_write();
    }
    base::lose(this, error)
}

/// What failed in the loop's work for an endpoint, such as an allocation, ends it.
pub(super) fn or_end(this: Datagram_<'_, '_>, done: PyResult<()>) -> PyResult<()> {
    base::or_end(this, done, "Fatal error on datagram transport")
}

/// The descriptor cannot be polled: it was closed under the transport, say.
pub(super) fn poll_failed(this: Datagram_<'_, '_>, errno: i32) -> PyResult<()> {
    read_failed(this, error::from_errno(errno))
}

/// Nothing can be received any more.
pub(super) fn read_failed(this: Datagram_<'_, '_>, error: PyErr) -> PyResult<()> {
    fatal_error(this, error, "Fatal read error on datagram transport")
}

/// An exception of the protocol does not end a datagram endpoint: as asyncio, whose reader callback
/// it leaves, tell the exception handler.
pub(super) fn report_callback(
    this: Datagram_<'_, '_>,
    told: PyResult<()>,
    callback: &str,
) -> PyResult<()> {
    base::report(this, told, || {
        let name = this.object().get_type().name()?;
        Ok(format!("Exception in callback {name}.{callback}()"))
    })
}
