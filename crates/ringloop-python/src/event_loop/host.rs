//! The loop's services for transports.
//!
//! Owns: the list of transports written to in this turn. Called by: `transport`, and the turn
//! (`flush`). Has no I/O of its own.

use ringloop::embed::sys::fd::RawFd;
use std::io;

use pyo3::prelude::*;
use pyo3::types::PyString;
use ringloop::embed::op::{Poll, Request};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::{Key, Sink, Token};

use super::core::LoopCore;
use super::handlers::{self, Flush, Handler, Watch};
use super::ready::Entry;
use crate::ffi::{self, Obj};

/// A level-triggered poll.
pub(crate) fn poll(fd: RawFd, interest: Interest) -> Request {
    Request::Poll(Poll { fd, interest, level: true })
}

impl LoopCore {
    /// `call_soon` for a callback whose handle is not kept.
    pub(crate) fn call_soon_step(
        &self,
        callable: Obj,
        argument: Option<Obj>,
        context: Obj,
    ) -> PyResult<()> {
        self.check_open()?;
        let step = Entry::Step { callable, argument, context };
        self.ready.with(|ready| ready.try_push(step))?
    }

    /// Calls a method of `object` in the next pass. Without memory for a callback, the turn calls it
    /// itself: closing a connection, or delivering received data, must not get lost.
    pub(crate) fn call_method_soon(
        &self,
        object: Borrowed<'_, '_, PyAny>,
        method: &Bound<'_, PyString>,
        argument: Option<Obj>,
        context: PyResult<Obj>,
    ) -> PyResult<()> {
        match object.getattr(method).and_then(|callable| Ok((callable, context?))) {
            Ok((callable, context)) => self.call_soon_step(callable.into(), argument, context),
            Err(_) => self.owe(object, method, argument),
        }
    }

    /// As [`LoopCore::call_method_soon`], with the callbacks of the wait: before timers, and before what
    /// was scheduled meanwhile.
    pub(crate) fn bring_method(
        &self,
        object: Borrowed<'_, '_, PyAny>,
        method: &Bound<'_, PyString>,
        context: PyResult<Obj>,
    ) -> PyResult<()> {
        self.check_open()?;
        match object.getattr(method).and_then(|callable| Ok((callable, context?))) {
            Ok((callable, context)) => {
                let step = Entry::Step { callable: callable.into(), argument: None, context };
                Ok(self.ready.with(|ready| ready.bring(step))?)
            }
            Err(_) => self.owe(object, method, None),
        }
    }

    /// Stops a poll, so that its descriptor may be closed at once. A ring is entered only by its
    /// own thread: from another one, the kernel stops the poll a moment later.
    pub(crate) fn forget_poll(&self, key: Key) -> PyResult<()> {
        let is_here = !self.engine.is_tied_to_another_thread()?;
        self.engine.driver(|driver| {
            if is_here {
                driver.forget_now(key);
            } else {
                driver.forget(key);
            }
        })
    }

    /// Keeps a transport alive, registers it for completions, and records its descriptor.
    pub(crate) fn add_transport(&self, handler: Handler, fd: RawFd) -> PyResult<Token> {
        self.check_open()?;
        self.transport_fds.with(|fds| fds.try_reserve(1))?.map_err(ffi::no_memory)?;
        let token = self.handlers.with(|slab| slab.register(handler))??;
        if self.transport_fds.with(|fds| fds.insert(fd, token))?.is_some() {
            // The application has closed another transport's socket, and this one got its number:
            // epoll's entry is gone with the old file.
            self.engine.driver(|driver| driver.release(fd))?;
        }
        Ok(token)
    }

    /// Stops keeping a transport alive; its descriptor stays recorded.
    pub(crate) fn rest_transport(&self, token: Token) -> PyResult<()> {
        drop(self.handlers.with(|slab| slab.remove(token))?);
        Ok(())
    }

    /// Keeps it alive, and registers it for completions, again.
    pub(crate) fn wake_transport(
        &self,
        handler: Handler,
        last: Token,
        fd: RawFd,
    ) -> PyResult<Token> {
        self.check_open()?;
        let token = self.handlers.with(|slab| slab.register(handler))??;
        self.transport_fds.with(|fds| {
            if let Some(known) = fds.get_mut(&fd).filter(|known| **known == last) {
                *known = token;
            }
        })?;
        Ok(token)
    }

    /// As [`LoopCore::release_socket`], from a finaliser, which may run at any time and in any
    /// thread: if the loop is busy, the next transport with this number does it.
    pub(crate) fn try_release_socket(&self, token: Token, fd: RawFd) {
        let is_own = self.transport_fds.with(|fds| fds.get(&fd) == Some(&token));
        if self.is_closed() || !matches!(is_own, Ok(true)) {
            return;
        }
        if self.engine.driver_if_free(|driver| driver.release(fd)).is_ok() {
            drop(self.transport_fds.with(|fds| fds.remove(&fd)));
        }
    }

    /// Whether a descriptor is a transport's, even a resting one's.
    pub(crate) fn is_transports(&self, fd: RawFd) -> PyResult<bool> {
        Ok(self.transport_fds.with(|fds| fds.contains_key(&fd))?)
    }

    /// Whether a transport or a watcher uses a descriptor.
    pub(crate) fn is_descriptor_used(&self, fd: RawFd) -> PyResult<bool> {
        Ok(self.is_transports(fd)? || self.watchers.with(|watchers| watchers.has(fd))?)
    }

    /// The transport that owns a descriptor.
    pub(crate) fn transport_of(&self, py: Python<'_>, fd: RawFd) -> PyResult<Option<Obj>> {
        let Some(token) = self.transport_fds.with(|fds| fds.get(&fd).copied())? else {
            return Ok(None);
        };
        Ok(self.handlers.with(|slab| slab.get(token).map(|found| found.object.clone_ref(py)))?)
    }

    /// Removes a handler whose operations have ended and whose descriptor is about to be closed.
    pub(crate) fn release_handler(&self, token: Token, fd: RawFd) -> PyResult<()> {
        self.release_socket(token, fd)?;
        if !self.is_closed() {
            drop(self.handlers.with(|slab| slab.remove(token))?);
        }
        Ok(())
    }

    /// Reports that a handler's descriptor is about to be closed, unless already reported.
    pub(crate) fn release_socket(&self, token: Token, fd: RawFd) -> PyResult<()> {
        // The parent still uses the one that a child of a fork closes its copy of.
        if self.is_closed() || self.engine.is_of_another_process() {
            return Ok(());
        }
        let own = self.transport_fds.with(|fds| {
            // Another transport may have the number by now: the application closed this one's
            // descriptor.
            let own = fds.get(&fd) == Some(&token);
            if own {
                fds.remove(&fd);
            }
            own
        })?;
        if own {
            self.engine.driver(|driver| driver.release(fd))?;
        }
        Ok(())
    }

    /// Polls `fd`, level-triggered, for `handler`, which is kept alive meanwhile. The inner error is as
    /// that of [`LoopCore::submit_poll`].
    pub(crate) fn watch(
        &self,
        handler: Handler,
        role: u8,
        fd: RawFd,
        interest: Interest,
    ) -> PyResult<io::Result<Watch>> {
        self.watch_by(handler, role, poll(fd, interest))
    }

    /// As [`LoopCore::watch`], by any kind of poll.
    pub(crate) fn watch_by(
        &self,
        handler: Handler,
        role: u8,
        poll: Request,
    ) -> PyResult<io::Result<Watch>> {
        self.check_open()?;
        let token = self.handlers.with(|slab| slab.register(handler))??;
        let sink = Sink::Handler(handlers::with_role(token, role));
        let submitted = self.submit_poll(poll, sink);
        if !matches!(submitted, Ok(Ok(_))) {
            drop(self.handlers.with(|slab| slab.remove(token))?);
        }
        submitted.map(|submitted| submitted.map(|key| Watch { token, key }))
    }

    /// Submits an operation.
    pub(crate) fn submit(&self, request: Request, sink: Sink) -> PyResult<Key> {
        self.meters.submitted.add(1);
        self.engine.driver(|driver| driver.submit(request, sink))
    }

    /// Submits a poll. The inner error is `ENOMEM` or `ENOSPC`: epoll has refused it, and it has ended
    /// without a completion.
    pub(crate) fn submit_poll(&self, poll: Request, sink: Sink) -> PyResult<io::Result<Key>> {
        let key = self.submit(poll, sink)?;
        self.engine.driver(|driver| {
            let Some(refusal) = driver.refusal(key) else {
                return Ok(key);
            };
            driver.forget(key);
            Err(refusal)
        })
    }

    /// Stops a poll and removes its handler, which is returned.
    pub(crate) fn unwatch(&self, watch: Watch) -> PyResult<Option<Handler>> {
        if !self.is_closed() && !self.engine.is_of_another_process() {
            self.forget_poll(watch.key)?;
        }
        Ok(self.handlers.with(|slab| slab.remove(watch.token))?)
    }

    /// Reports that a descriptor without polls is about to be closed.
    pub(crate) fn release_descriptor(&self, fd: RawFd) -> PyResult<()> {
        if self.is_closed() || self.engine.is_of_another_process() {
            return Ok(());
        }
        self.engine.driver(|driver| driver.release(fd))
    }

    /// Flushes a transport at the end of this turn. A closed loop has no further turn, and would
    /// keep the transport forever.
    #[inline]
    pub(crate) fn flush_later(&self, transport: Handler) -> PyResult<()> {
        self.check_open()?;
        self.unflushed.with(|unflushed| {
            unflushed.try_reserve(1).map_err(ffi::no_memory)?;
            unflushed.push(transport);
            Ok(())
        })?
    }

    /// Whether any transport waits for [`LoopCore::flush`].
    #[inline]
    pub(super) fn has_unflushed(&self) -> PyResult<bool> {
        Ok(self.unflushed.with(|unflushed| !unflushed.is_empty())?)
    }

    /// Sends everything written in this turn.
    pub(super) fn flush(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        let mut batch = self.unflushed.with(std::mem::take)?;
        let mut first_error = Ok(());
        for transport in batch.drain(..) {
            first_error = first_error.and(transport.flush(loop_, Flush::TurnEnds));
        }
        // The memory is reused in the next turn, unless a callback has written meanwhile.
        self.unflushed.with(|unflushed| {
            if unflushed.is_empty() {
                *unflushed = batch;
            }
        })?;
        first_error
    }

    /// Sends what was gathered in this turn so far; the transports stay on the list.
    pub(super) fn send_gathered(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        let py = loop_.py();
        for index in 0.. {
            let next = |unflushed: &mut Vec<Handler>| {
                unflushed.get(index).map(|transport| transport.clone_ref(py))
            };
            let Some(transport) = self.unflushed.with(next)? else {
                break;
            };
            transport.flush(loop_, Flush::Now)?;
        }
        Ok(())
    }

    /// The engine is closed: notifies the handlers, which may have sockets to close.
    pub(super) fn abandon(py: Python<'_>, handlers: Vec<Handler>) {
        for handler in handlers {
            handler.abandon(py);
        }
    }
}
