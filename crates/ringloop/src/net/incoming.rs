//! Connections as they come: one accept for each, or one multishot accept for all of them.
//!
//! Owns: [`Incoming`], [`accept`]. Called by: listeners. Never does: stop for an error; what ended the accept
//! (`EMFILE`, a reset before it was taken) is handed out, and the next call accepts again.

use super::socket::Socket;
use crate::executor::{Multi, Op};
use crate::limits;
use crate::op::{Accept, Kind, Outcome, Request};
use crate::sys::socket::is_exhaustion;
use crate::time::{Sleep, sleep};
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The connections of a listener, in order of arrival.
///
/// Bounded: at most `limits::UNTAKEN_CONNECTIONS_MAX` wait here; then accepting stops until they are taken,
/// and the others wait in the listener's backlog. Dropping it closes the ones that were not taken. So it is for a listener
/// that nobody else accepts from: another process or runtime would get none of them.
/// Source: accept(2), multishot since kernel 5.19.
#[derive(Debug)]
#[must_use = "nothing is accepted until the next connection is asked for"]
pub struct Incoming<'a, S> {
    listener: &'a Socket,
    multi: Multi,
    stream: PhantomData<fn() -> S>,
    /// An error that is told after a pause.
    late: Option<(Sleep, io::Error)>,
}

/// Take one connection; a lack of descriptors or memory is told after [`limits::ACCEPT_PAUSE`].
pub(super) async fn accept(listener: &Socket) -> io::Result<OwnedFd> {
    let accept = Accept {
        fd: listener.on_loop(),
        multi: false,
    };
    let accepted = Op::new(accept).await;
    if accepted.as_ref().is_err_and(is_exhaustion) {
        sleep(limits::ACCEPT_PAUSE).await;
    }
    accepted
}

impl<'a, S: From<OwnedFd>> Incoming<'a, S> {
    pub(super) fn new(listener: &'a Socket) -> Self {
        Self {
            listener,
            multi: Multi::default(),
            stream: PhantomData,
            late: None,
        }
    }

    /// Take the next connection.
    ///
    /// Errors: `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`: told after [`limits::ACCEPT_PAUSE`], so that who asks again does not
    /// spin. `ECONNABORTED`: ask again.
    /// Cancel safety: safe; a connection that came meanwhile is the next call's.
    pub async fn next(&mut self) -> io::Result<S> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Incoming::next`] as a poll function, for streams of one's own.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<S>> {
        if let Some((pause, _)) = &mut self.late {
            ready!(Pin::new(pause).poll(cx));
            if let Some((_, error)) = self.late.take() {
                return Poll::Ready(Err(error));
            }
        }
        let listener = self.listener;
        let accept = |fd| Request::Accept(Accept { fd, multi: true });
        let request = || accept(listener.on_loop());
        let arrival = ready!(self.multi.poll_next(cx, request));
        // The request stays with the driver, which goes on with it.
        let outcome = Outcome::of(arrival.result, accept(listener.as_raw_fd()));
        match Accept::output(outcome) {
            Err(error) if is_exhaustion(&error) => {
                self.late = Some((sleep(limits::ACCEPT_PAUSE), error));
                self.poll_next(cx)
            }
            accepted => Poll::Ready(accepted.map(S::from)),
        }
    }
}
