//! How a pipe transport ends: what of [`base`]'s way is a pipe's own.
//!
//! The polls end before the descriptor is closed, and the driver is told of it.
//!
//! Called by: both ends. Never does: read or write.

use pyo3::prelude::*;

use super::Pipe;
use super::poll::{self, Role};
use crate::ffi::{Obj, This, intern};
use crate::transport::base::{self, fatal_error_as};

/// Stop everything and schedule `connection_lost`.
pub(super) fn lose<T: Pipe>(this: This<'_, '_, T>, error: Option<Obj>) -> PyResult<()> {
    if this.base().is_lost() {
        return Ok(());
    }
    let stopped = stop_polling(this);
    stopped.and(base::lose(this, error))
}

/// What failed in the loop's work for a pipe, such as an allocation, ends it.
pub(super) fn or_end<T: Pipe>(this: This<'_, '_, T>, done: PyResult<()>) -> PyResult<()> {
    match done {
        Err(error) if !this.base().is_closing() => {
            fatal_error_as(this, error, "Fatal error on pipe transport", false)
        }
        done => done,
    }
}

/// `connection_lost` was called.
pub(super) fn lost<T: Pipe>(this: This<'_, '_, T>) -> PyResult<()> {
    let stopped = stop_polling(this);
    let core = this.base().core(this.py())?;
    let released = core.get().release_descriptor(this.end().fd);
    stopped.and(released).and(close_pipe(this))
}

fn stop_polling<T: Pipe>(this: This<'_, '_, T>) -> PyResult<()> {
    poll::stop(this, Role::Write)?;
    poll::stop(this, Role::Read)
}

pub(super) fn close_pipe<T: Pipe>(this: This<'_, '_, T>) -> PyResult<()> {
    if let Some(pipe) = this.end().pipe.take() {
        let py = this.py();
        pipe.bind(py).call_method0(intern!(py, "close"))?;
    }
    Ok(())
}

/// The loop was closed under the transport; its finaliser closes the pipe.
pub(super) fn abandoned<T: Pipe>(this: This<'_, '_, T>) {
    for role in [Role::Read, Role::Write] {
        if let Some(poller) = this.poller(role) {
            poller.forget();
        }
    }
}
