//! Connections as they come: one multishot accept for all of them.
//!
//! Owns: [`Incoming`]. Called by: listeners' `incoming()`. Never does: stop for an error; what ended the accept
//! (`EMFILE`, a reset before it was taken) is handed out, and the next call accepts again.

use super::socket::Socket;
use crate::executor::Multi;
use crate::op::{Accept, Kind, Outcome, Request};
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll};

/// The connections of a listener, in order of arrival.
///
/// Bounded: at most `limits::UNTAKEN_CONNECTIONS_MAX` wait here; then accepting stops until they are taken,
/// and the others wait in the listener's backlog. Dropping it closes the ones that were not taken.
/// Source: accept(2), multishot since kernel 5.19.
#[derive(Debug)]
#[must_use = "nothing is accepted until the next connection is asked for"]
pub struct Incoming<'a, S> {
    listener: &'a Socket,
    multi: Multi,
    stream: PhantomData<fn() -> S>,
}

impl<'a, S: From<OwnedFd>> Incoming<'a, S> {
    pub(super) fn new(listener: &'a Socket) -> Self {
        Self {
            listener,
            multi: Multi::default(),
            stream: PhantomData,
        }
    }

    /// Take the next connection.
    ///
    /// Errors: `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`: wait a little and ask again. `ECONNABORTED`: ask again.
    /// Cancel safety: safe; a connection that came meanwhile is the next call's.
    pub async fn next(&mut self) -> io::Result<S> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Incoming::next`] as a poll function, for streams of one's own.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<S>> {
        let listener = self.listener;
        let accept = |fd| Request::Accept(Accept { fd, multi: true });
        let request = || accept(listener.on_loop());
        self.multi.poll_next(cx, request).map(|arrival| {
            // The request stays with the driver, which goes on with it.
            let outcome = Outcome::of(arrival.result, accept(listener.as_raw_fd()));
            Accept::output(outcome).map(S::from)
        })
    }
}
