//! How a connection ends: what of [`super::base`]'s way is a stream's own.
//!
//! Called by: every part of the transport. Never does: touch the queues of `read` and `write`.

use pyo3::prelude::*;

use super::base::{self, State};
use super::{Stream_, create, read, sendfile, socket, write};
use crate::ffi::{Obj, intern};

/// Close once everything written is sent.
pub(super) fn close(this: Stream_<'_, '_>) -> PyResult<()> {
    if this.base.is_closing() {
        return Ok(());
    }
    this.base.state.set(State::Closing);
    read::stop(this)?;
    write::send_gathered(this)?;
    if this.write.is_empty() {
        lose(this, None)
    } else {
        Ok(())
    }
}

/// Close now; what was not sent is dropped.
pub(super) fn force_close(this: Stream_<'_, '_>, error: Option<Obj>) -> PyResult<()> {
    if this.base.is_lost() {
        return Ok(());
    }
    if this.base.state.get() == State::Open {
        this.base.state.set(State::Closing);
        read::stop(this)?;
    }
    write::discard(this)?;
    lose(this, error)
}

/// Everything is sent, or dropped: schedule `connection_lost`.
pub(super) fn lose(this: Stream_<'_, '_>, error: Option<Obj>) -> PyResult<()> {
    if !this.base.is_lost() {
        this.base.count_lost_write();
    }
    base::lose(this, error)
}

/// `connection_lost` was called.
pub(super) fn lost(this: Stream_<'_, '_>) -> PyResult<()> {
    let interrupted = sendfile::lost(this);
    let closed = socket::close_if_lost(this);
    interrupted.and(closed).and(detach(this))
}

/// `Server._detach` learnt to take the transport in 3.12.1 / 3.13 with `close_clients`.
pub(super) fn detach(this: Stream_<'_, '_>) -> PyResult<()> {
    let py = this.py();
    let Some(server) = this.server.take() else {
        return Ok(());
    };
    let server = server.bind(py);
    if create::server_takes_transport(server)? {
        server.call_method1(intern!(py, "_detach"), (this.object(),))?;
    } else {
        server.call_method0(intern!(py, "_detach"))?;
    }
    Ok(())
}

/// The loop was closed under the transport.
pub(super) fn abandoned(this: Stream_<'_, '_>) {
    this.read.forget();
    // A child's copy of the queue is the parent's to send.
    if let Ok(core) = this.base.core(this.py())
        && !core.get().engine.is_of_another_process()
    {
        write::send_last(this);
    }
    this.write.forget();
    socket::abandoned(this);
}
