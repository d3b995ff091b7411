//! What the loop does for transports.
//!
//! Owns: the list of transports that were written to in this turn. Called by: `transport`, and the
//! turn (`flush`). Never does: I/O of its own.

use std::os::fd::RawFd;

use pyo3::prelude::*;
use ringloop::embed::op::{Poll, Request};
use ringloop::embed::sys::interest::Interest;
use ringloop::embed::{Key, Sink, Token};

use super::core::LoopCore;
use super::handlers::{self, Flush, Handler};
use super::owed::{Owed, Pay};
use super::ready::Entry;
use crate::ffi::{self, Obj};

/// A poll, and its handler's place. Who drops it without [`LoopCore::unwatch`] leaves both behind.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    token: Token,
    key: Key,
}

impl LoopCore {
    /// `call_soon` for a callback whose handle nobody keeps.
    pub(crate) fn call_soon_step(
        &self,
        callable: Obj,
        argument: Option<Obj>,
        context: Obj,
    ) -> PyResult<()> {
        self.check_open()?;
        let step = Entry::Step {
            callable,
            argument,
            context,
        };
        self.ready.with(|ready| ready.try_push(step))?
    }

    /// Run a callback among those of the wait: before timers, and before what was scheduled meanwhile.
    pub(crate) fn bring_step(&self, callable: Obj, context: Obj) -> PyResult<()> {
        self.check_open()?;
        Ok(self.ready.with(|ready| {
            ready.bring(Entry::Step {
                callable,
                argument: None,
                context,
            });
        })?)
    }

    /// As [`LoopCore::call_soon_step`] for a method of `object` and its context. Where there was no memory to make them,
    /// `pay` is called without: what ends a connection, or delivers what it has received, must not get lost.
    pub(crate) fn call_soon_or_owe(
        &self,
        step: PyResult<(Obj, Obj)>,
        object: Borrowed<'_, '_, PyAny>,
        argument: Option<Obj>,
        pay: Pay,
    ) -> PyResult<()> {
        match step {
            Ok((callable, context)) => self.call_soon_step(callable, argument, context),
            Err(_) => self.owe(Owed {
                object: Obj::from_borrowed(object),
                argument,
                pay,
            }),
        }
    }

    /// As [`LoopCore::call_soon_or_owe`], among the callbacks of the wait.
    pub(crate) fn bring_or_owe(
        &self,
        step: PyResult<(Obj, Obj)>,
        object: Borrowed<'_, '_, PyAny>,
        pay: Pay,
    ) -> PyResult<()> {
        match step {
            Ok((callable, context)) => self.bring_step(callable, context),
            Err(_) => self.call_soon_or_owe(step, object, None, pay),
        }
    }

    /// Stop a poll, so that nothing of it is left and its descriptor may be closed at once. A ring is entered by its
    /// own thread only: in another one, the kernel lets go a moment later.
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

    /// Keep a transport alive, name it for completions, and mark its descriptor as taken.
    pub(crate) fn add_transport(&self, handler: Handler, fd: RawFd) -> PyResult<Token> {
        self.check_open()?;
        self.transport_fds
            .with(|fds| fds.try_reserve(1))?
            .map_err(ffi::no_memory)?;
        let token = self.handlers.with(|slab| slab.register(handler))??;
        if self
            .transport_fds
            .with(|fds| fds.insert(fd, token))?
            .is_some()
        {
            // The user has closed another transport's socket, and this one got its number: what
            // epoll had of the number is gone with the old file.
            self.engine.driver(|driver| driver.release(fd))?;
        }
        Ok(token)
    }

    /// Keep a transport alive no longer; its descriptor stays its own.
    pub(crate) fn rest_transport(&self, token: Token) -> PyResult<()> {
        drop(self.handlers.with(|slab| slab.remove(token))?);
        Ok(())
    }

    /// Keep it alive, and name it for completions, again.
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

    /// As [`LoopCore::release_socket`], from a finaliser, which may run at any moment and in any thread: where the loop
    /// is busy, the next transport with this number does it.
    pub(crate) fn try_release_socket(&self, token: Token, fd: RawFd) {
        let is_own = self.transport_fds.with(|fds| fds.get(&fd) == Some(&token));
        if self.is_closed() || !matches!(is_own, Ok(true)) {
            return;
        }
        if self
            .engine
            .driver_if_free(|driver| driver.release(fd))
            .is_ok()
        {
            drop(self.transport_fds.with(|fds| fds.remove(&fd)));
        }
    }

    /// Say whether a descriptor is a transport's, also of one that rests.
    pub(crate) fn is_transports(&self, fd: RawFd) -> PyResult<bool> {
        Ok(self.transport_fds.with(|fds| fds.contains_key(&fd))?)
    }

    /// Say whether a transport or a watcher has a descriptor.
    pub(crate) fn is_descriptor_used(&self, fd: RawFd) -> PyResult<bool> {
        Ok(self.is_transports(fd)? || self.watchers.with(|watchers| watchers.has(fd))?)
    }

    /// The transport that owns a descriptor.
    pub(crate) fn transport_of(&self, py: Python<'_>, fd: RawFd) -> PyResult<Option<Obj>> {
        let Some(token) = self.transport_fds.with(|fds| fds.get(&fd).copied())? else {
            return Ok(None);
        };
        Ok(self
            .handlers
            .with(|slab| slab.get(token).map(|found| found.object.clone_ref(py)))?)
    }

    /// Let go of a handler whose operations are over and whose descriptor is about to be closed.
    pub(crate) fn release_handler(&self, token: Token, fd: RawFd) -> PyResult<()> {
        self.release_socket(token, fd)?;
        if !self.is_closed() {
            drop(self.handlers.with(|slab| slab.remove(token))?);
        }
        Ok(())
    }

    /// Say that a handler's descriptor is about to be closed, where that was not said before.
    pub(crate) fn release_socket(&self, token: Token, fd: RawFd) -> PyResult<()> {
        if self.is_closed() {
            return Ok(());
        }
        let own = self.transport_fds.with(|fds| {
            // Another transport may have the number by now: the user closed this one's descriptor.
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

    /// Poll `fd`, level-triggered, and tell `handler`, which is kept alive for as long.
    pub(crate) fn watch(
        &self,
        handler: Handler,
        role: u8,
        fd: RawFd,
        interest: Interest,
    ) -> PyResult<Watch> {
        let level = true;
        let poll = Poll {
            fd,
            interest,
            level,
        };
        self.watch_by(handler, role, Request::Poll(poll))
    }

    /// As [`LoopCore::watch`], by any kind of poll.
    pub(crate) fn watch_by(&self, handler: Handler, role: u8, poll: Request) -> PyResult<Watch> {
        self.check_open()?;
        let token = self.handlers.with(|slab| slab.register(handler))??;
        let sink = Sink::Handler(handlers::with_role(token, role));
        match self.engine.driver(|driver| driver.submit(poll, sink)) {
            Ok(key) => Ok(Watch { token, key }),
            Err(error) => {
                drop(self.handlers.with(|slab| slab.remove(token))?);
                Err(error)
            }
        }
    }

    /// Stop a poll and let go of its handler.
    pub(crate) fn unwatch(&self, watch: Watch) -> PyResult<()> {
        if !self.is_closed() && !self.engine.is_of_another_process() {
            self.forget_poll(watch.key)?;
        }
        drop(self.handlers.with(|slab| slab.remove(watch.token))?);
        Ok(())
    }

    /// Say that a descriptor without polls is about to be closed.
    pub(crate) fn release_descriptor(&self, fd: RawFd) -> PyResult<()> {
        if self.is_closed() || self.engine.is_of_another_process() {
            return Ok(());
        }
        self.engine.driver(|driver| driver.release(fd))
    }

    /// Flush a transport at the end of this turn. A closed loop has no other, and would keep the transport for good.
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

    /// Hand everything that was written in this turn to the kernel.
    pub(super) fn flush(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        let mut batch = self.unflushed.with(std::mem::take)?;
        let mut first_error = Ok(());
        for transport in batch.drain(..) {
            first_error = first_error.and(transport.flush(loop_, Flush::TurnEnds));
        }
        // The memory serves the next turn, unless a callback has written meanwhile.
        self.unflushed.with(|unflushed| {
            if unflushed.is_empty() {
                *unflushed = batch;
            }
        })?;
        first_error
    }

    /// Send what was gathered in this turn so far; the transports stay on the list.
    pub(super) fn send_gathered(&self, loop_: &Bound<'_, LoopCore>) -> PyResult<()> {
        let py = loop_.py();
        for index in 0.. {
            let next = |unflushed: &mut Vec<Handler>| {
                unflushed
                    .get(index)
                    .map(|transport| transport.clone_ref(py))
            };
            let Some(transport) = self.unflushed.with(next)? else {
                break;
            };
            transport.flush(loop_, Flush::Now)?;
        }
        Ok(())
    }

    /// The engine is gone: tell the handlers, which may have sockets to close.
    pub(super) fn abandon(py: Python<'_>, handlers: Vec<Handler>) {
        for handler in handlers {
            handler.abandon(py);
        }
    }
}
