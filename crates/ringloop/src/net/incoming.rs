//! Accepting: a single accept, or a multishot accept as a sequence.
//!
//! Owns: [`Incoming`], [`accept`]. Called by: listeners. An error (`EMFILE`, a reset connection) is
//! an item of the sequence; the next call accepts again.

use super::socket::Socket;
use crate::executor::{Multi, Op};
use crate::limits;
use crate::op::{Accept, Kind, Outcome, Request};
use crate::sys::fd::{AsRawFd, OwnedFd};
use crate::sys::socket::is_exhaustion;
use crate::time::{Sleep, sleep};
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The connections of a listener, in order of arrival.
///
/// At most `limits::UNTAKEN_CONNECTIONS_MAX` are queued here; then accepting stops, and further
/// connections stay in the listener's backlog. Dropping it closes queued connections. Use it only
/// for a listener that no other process or runtime accepts from: those would get none. See
/// accept(2), multishot since kernel 5.19.
#[derive(Debug)]
#[must_use = "nothing is accepted until next() is awaited"]
pub struct Incoming<'a, S> {
    listener: &'a Socket,
    multi: Multi,
    stream: PhantomData<fn() -> S>,
    /// An error that is returned after a pause.
    late: Option<(Sleep, io::Error)>,
}

/// Accepts one connection; returns exhaustion after [`limits::ACCEPT_PAUSE`].
pub(super) async fn accept(listener: &Socket) -> io::Result<OwnedFd> {
    let accept = Accept { fd: listener.on_loop(), multi: false };
    let accepted = Op::new(accept).await;
    if accepted.as_ref().is_err_and(is_exhaustion) {
        sleep(limits::ACCEPT_PAUSE).await;
    }
    accepted
}

impl<'a, S: From<OwnedFd>> Incoming<'a, S> {
    pub(super) fn new(listener: &'a Socket) -> Self {
        Self { listener, multi: Multi::default(), stream: PhantomData, late: None }
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`, after a pause of [`limits::ACCEPT_PAUSE`], so that a
    /// retry does not spin; `ECONNABORTED`. Accept again.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call returns the connection.
    pub async fn next(&mut self) -> io::Result<S> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Incoming::next`] as a poll function.
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
        // The driver keeps the request and re-arms it.
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
