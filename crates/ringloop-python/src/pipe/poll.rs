//! Poll of one direction of a pipe, and the step of the loop that it schedules.
//!
//! Owns: whether the engine polls, and the context of the step: the one in which polling started,
//! as in a selector's handle. Called by: `read` and `write`, and the turn ([`completed`]).
//!
//! The result of a poll is handled after what is ready already, like a selector's callback. The
//! transport is kept alive only by its polls: as in asyncio, an unpolled and unreferenced transport
//! is collected, with a `ResourceWarning`.

use std::cell::Cell;

use pyo3::prelude::*;
use ringloop::embed::Event;
use ringloop::embed::sys::epoll;
use ringloop::embed::sys::interest::Interest;

use super::{Pipe, lifecycle};
use crate::error;
use crate::event_loop::{Handler, Pay, Watch, handlers};
use crate::ffi::{self, Obj, ObjCell, This, Visited, Visitor, intern};
use crate::transport::base::step as step_of;

/// The polled direction; stored in the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Read,
    Write,
}

impl Role {
    fn interest(self) -> Interest {
        match self {
            Self::Read => Interest::READ,
            Self::Write => Interest::WRITE,
        }
    }
}

/// The poll of one direction.
#[derive(Default)]
pub(super) struct Poller {
    watch: Cell<Option<Watch>>,
    /// Context of the step.
    context: ObjCell,
    scheduled: Cell<bool>,
    /// The kernel ended the poll; the following system call gets the reason.
    failed: Cell<bool>,
}

impl Poller {
    pub fn is_polling(&self) -> bool {
        self.watch.get().is_some()
    }

    /// Stores the current context for later steps of this direction.
    pub fn keep_context(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.context.replace(Some(ffi::context_copy_current(py)?)));
        Ok(())
    }

    pub fn context(&self, py: Python<'_>) -> Option<Obj> {
        self.context.get(py)
    }

    /// The engine is closed, and the poll with it.
    pub fn forget(&self) {
        self.watch.set(None);
    }

    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.context.visit(visitor)
    }

    pub fn clear(&self) {
        drop(self.context.take());
    }
}

/// Starts polling, in the current context.
///
/// # Errors
/// `PermissionError` for a device that cannot be polled, as from epoll.
pub(super) fn start<T: Pipe>(this: This<'_, '_, T>, role: Role) -> PyResult<()> {
    let Some(poller) = this.poller(role) else {
        return Ok(());
    };
    poller.keep_context(this.py())?;
    if poller.is_polling() {
        return Ok(());
    }
    let end = this.end();
    if end.kind.is_device() {
        epoll::check_waits(end.fd).map_err(|error| error::from_io(&error))?;
    }
    let core = end.base.core(this.py())?;
    let watch = core.get().watch(Handler::of(this), role as u8, end.fd, role.interest())?;
    poller.watch.set(Some(watch));
    Ok(())
}

/// Stops polling; a scheduled step does nothing.
pub(super) fn stop<T: Pipe>(this: This<'_, '_, T>, role: Role) -> PyResult<()> {
    let Some(watch) = this.poller(role).and_then(|poller| poller.watch.take()) else {
        return Ok(());
    };
    this.end().base.core(this.py())?.get().unwatch(watch).map(drop)
}

/// A poll completed: schedules the step.
pub(super) fn completed<T: Pipe>(this: This<'_, '_, T>, event: &Event) -> PyResult<()> {
    let py = this.py();
    let (role, name) = if handlers::role(event.token) == Role::Read as u8 {
        (Role::Read, intern!(py, "_read_ready"))
    } else {
        (Role::Write, intern!(py, "_write_ready"))
    };
    let Some(poller) = this.poller(role).filter(|poller| poller.is_polling()) else {
        return Ok(());
    };
    poller.failed.set(!event.completion.more);
    let Some(context) = poller.context(py) else {
        return Ok(());
    };
    if poller.scheduled.replace(true) {
        return Ok(());
    }
    let pay: Pay = match role {
        Role::Read => |object, _| T::native().with(object, |this| run(this, Role::Read)),
        Role::Write => |object, _| T::native().with(object, |this| run(this, Role::Write)),
    };
    let step = step_of(&this.object(), name, Ok(context));
    let core = this.end().base.core(py)?;
    core.get().bring_or_owe(step, this.object(), pay)
}

/// The scheduled step.
pub(super) fn run<T: Pipe>(this: This<'_, '_, T>, role: Role) -> PyResult<()> {
    let Some(poller) = this.poller(role) else {
        return Ok(());
    };
    poller.scheduled.set(false);
    if !poller.is_polling() {
        return Ok(());
    }
    let done = T::ready(this, role);
    if poller.failed.replace(false) && poller.is_polling() {
        let again = stop(this, role).and_then(|()| start(this, role));
        return done.and(lifecycle::or_end(this, again));
    }
    done
}
