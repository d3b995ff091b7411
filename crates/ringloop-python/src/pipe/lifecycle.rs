//! End of a pipe transport: what is specific to pipes in [`base`]'s lifecycle.
//!
//! The polls end, and the driver releases the descriptor, before it is closed.
//!
//! Called by: both ends.

use pyo3::prelude::*;
use ringloop::embed::Event;

use super::Pipe;
use super::poll::{self, Role};
use crate::event_loop::Completes;
use crate::ffi::{Obj, This, intern};
use crate::transport::base::{self, Base, Endpoint, fatal_error_as};

impl<T: Pipe> Completes for T {
    fn completed(this: This<'_, '_, T>, event: Event) -> PyResult<()> {
        poll::completed(this, &event)
    }

    /// The finaliser closes the pipe.
    fn abandoned(this: This<'_, '_, T>) {
        for role in [Role::Read, Role::Write] {
            if let Some(poller) = this.poller(role) {
                poller.forget();
            }
        }
        this.discard();
    }
}

impl<T: Pipe> Endpoint for T {
    fn base(&self) -> &Base {
        &self.end().base
    }

    fn close(this: This<'_, '_, T>) -> PyResult<()> {
        Pipe::close(this)
    }

    fn force_close(this: This<'_, '_, T>, error: Option<Obj>) -> PyResult<()> {
        this.discard();
        lose(this, error)
    }

    fn lost(this: This<'_, '_, T>) -> PyResult<()> {
        let stopped = stop_polling(this);
        let core = this.base().core(this.py())?;
        let released = core.get().release_descriptor(this.end().fd);
        stopped.and(released).and(T::close_unclosed(this))
    }

    fn is_unclosed(&self) -> bool {
        self.end().pipe.is_some()
    }

    fn close_unclosed(this: This<'_, '_, T>) -> PyResult<()> {
        if let Some(pipe) = this.end().pipe.take() {
            let py = this.py();
            pipe.bind(py).call_method0(intern!(py, "close"))?;
        }
        Ok(())
    }
}

/// Stops everything and schedules `connection_lost`.
pub(super) fn lose<T: Pipe>(this: This<'_, '_, T>, error: Option<Obj>) -> PyResult<()> {
    if this.base().is_lost() {
        return Ok(());
    }
    let stopped = stop_polling(this);
    stopped.and(base::lose(this, error))
}

/// A failure in the loop's own work for a pipe, such as an allocation, ends it.
pub(super) fn or_end<T: Pipe>(this: This<'_, '_, T>, done: PyResult<()>) -> PyResult<()> {
    match done {
        Err(error) if !this.base().is_closing() => {
            fatal_error_as(this, error, "Fatal error on pipe transport", false)
        }
        done => done,
    }
}

fn stop_polling<T: Pipe>(this: This<'_, '_, T>) -> PyResult<()> {
    poll::stop(this, Role::Write)?;
    poll::stop(this, Role::Read)
}
