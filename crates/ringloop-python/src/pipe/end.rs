//! What both ends of a pipe are made of: their common state, the polls of an end with the steps of the
//! loop that these schedule, and its close.
//!
//! Owns: whether the engine polls a direction, and the context of its step: the one in which polling
//! started, as in a selector's handle. Called by: `read` and `write`, and the turn ([`completed`]).
//!
//! The result of a poll is handled after what is ready already, like a selector's callback. The
//! transport is kept alive only by its polls: as in asyncio, an unpolled and unreferenced transport
//! is collected, with a `ResourceWarning`. The polls end, and the driver releases the descriptor,
//! before it is closed.

use ringloop::embed::sys::fd::RawFd;
use std::cell::Cell;
use std::io;

use pyo3::prelude::*;
use ringloop::embed::Event;
use ringloop::embed::sys::file::FileKind;
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::sys::selector;

use crate::error;
use crate::event_loop::{Completes, Handler, Watch, handlers};
use crate::ffi::{
    self, Argument, Definition, IntoObject as _, Obj, ObjCell, Payload, This, Visited, Visitor,
    intern, members,
};
use crate::transport::base::{self, Base, Endpoint, fatal_error, fatal_error_as};

/// Common state of both ends.
pub(super) struct End {
    pub base: Base,
    /// The file object; empty once closed.
    pub pipe: ObjCell,
    pub fd: RawFd,
    pub kind: FileKind,
    /// Whether each write is a message, and each read takes one; determined at creation.
    pub keeps_messages: bool,
}

impl End {
    pub fn visit(&self, visitor: &mut dyn Visitor) -> Visited {
        self.base.visit(visitor)?;
        self.pipe.visit(visitor)
    }
}

/// A pipe transport of either direction.
pub(super) trait Pipe: Payload {
    fn end(&self) -> &End;
    /// The poll of one direction, if this end has it.
    fn poller(&self, role: Role) -> Option<&Poller>;
    /// Handles the result of a poll.
    fn ready(this: This<'_, '_, Self>, role: Role) -> PyResult<()>;
    /// Closes once everything queued is written.
    fn close(this: This<'_, '_, Self>) -> PyResult<()>;
    /// Drops what is queued.
    fn discard(&self) {}
}

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

/// Starts reading, right after `connection_made`, and wakes the one that waits for the transport, with an
/// error if the kernel lacks memory for the poll.
pub(super) fn begin<T: Pipe>(this: This<'_, '_, T>, waiter: Argument<'_, '_>) -> PyResult<()> {
    let started = poll(this, Role::Read);
    let Ok(Err(refusal)) = &started else {
        let woken = base::wake(&waiter);
        return started.map(drop).and(woken);
    };
    if !waiter.is_none() && !waiter.call_method0(intern!(this.py(), "done"))?.is_truthy()? {
        let error = error::from_io(refusal).into_value(this.py());
        waiter.call_method1(intern!(this.py(), "set_exception"), (error,))?;
    }
    refused(this, refusal)
}

/// Starts polling, in the current context.
///
/// # Errors
/// `PermissionError` for a device that cannot be polled, as from epoll.
pub(super) fn start<T: Pipe>(this: This<'_, '_, T>, role: Role) -> PyResult<()> {
    match poll(this, role)? {
        Ok(()) => Ok(()),
        Err(refusal) => refused(this, &refusal),
    }
}

/// The kernel lacks memory for a poll: the transport ends, as nothing else would wake it.
fn refused<T: Pipe>(this: This<'_, '_, T>, refusal: &io::Error) -> PyResult<()> {
    fatal_error(this, error::from_io(refusal), "Fatal error on pipe transport")
}

fn poll<T: Pipe>(this: This<'_, '_, T>, role: Role) -> PyResult<io::Result<()>> {
    let Some(poller) = this.poller(role) else {
        return Ok(Ok(()));
    };
    poller.keep_context(this.py())?;
    if poller.is_polling() {
        return Ok(Ok(()));
    }
    let end = this.end();
    if end.kind.is_device() {
        selector::check_waits(end.fd).map_err(|error| error::from_io(&error))?;
    }
    let core = end.base.core(this.py())?;
    let watched = core.get().watch(Handler::of(this), role as u8, end.fd, role.interest())?;
    Ok(watched.map(|watch| poller.watch.set(Some(watch))))
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
    this.end().base.core(py)?.get().bring_method(this.object(), name, Ok(context))
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
        return done.and(or_end(this, again));
    }
    done
}

impl<T: Pipe> Completes for T {
    fn completed(this: This<'_, '_, T>, event: Event) -> PyResult<()> {
        completed(this, &event)
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
    const KIND: &'static str = "pipe";

    fn base(&self) -> &Base {
        &self.end().base
    }

    fn close(this: This<'_, '_, T>) -> PyResult<()> {
        base::leave_to_parent(this)?;
        Pipe::close(this)
    }

    fn force_close(this: This<'_, '_, T>, error: Option<Obj>) -> PyResult<()> {
        base::leave_to_parent(this)?;
        this.discard();
        lose(this, error)
    }

    fn lost(this: This<'_, '_, T>) -> PyResult<()> {
        stop_polling(this).and(T::close_unclosed(this))
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
    // Not after `connection_lost`: the file may be closed by then, and its number another's. asyncio
    // closes those of a child of which another pipe cannot be connected.
    let core = this.base().core(this.py())?;
    let released = core.get().release_descriptor(this.end().fd);
    stopped.and(released).and(base::lose(this, error))
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
    stop(this, Role::Write)?;
    stop(this, Role::Read)
}

/// Lists the members of both ends.
pub(super) fn define<T: Pipe>(type_: &mut Definition<T>) {
    base::define(type_);
    members!(type_, T: Pipe;
        _read_ready() => |this| run(this, Role::Read), "Read, or see that the other end is closed.";
        get _pipe => |this| this.end().pipe.get_or_none(this.py()), "The file object; None once closed.";
        get _fileno => |this| this.end().fd.into_object(this.py()), "The pipe's descriptor.";
    );
}

/// As asyncio formats it, with our class's name.
pub(super) fn repr<'py, T: Pipe>(
    this: This<'_, 'py, T>,
    is_polling: bool,
    size: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let End { base, pipe, fd, .. } = this.end();
    let name = this.object().get_type().name()?;
    let state = if base.appears_closing() { " closing" } else { "" };
    let text = if !pipe.is_some() {
        format!("<{name} closed fd={fd} closed>")
    } else if base.core(this.py())?.get().is_closed() {
        format!("<{name}{state} fd={fd} open>")
    } else {
        let polling = if is_polling { "polling" } else { "idle" };
        format!("<{name}{state} fd={fd} {polling}{size}>")
    };
    text.into_object(this.py())
}
