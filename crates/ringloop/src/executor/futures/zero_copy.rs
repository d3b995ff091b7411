//! A zero-copy send as two futures: the first tells how many bytes went out, the second gives the buffers
//! back once the network has let go of them.
//!
//! Owns: [`SendZeroCopy`], [`Lent`]. Called by: `net`. Never does: retry; `net` falls back to a plain send.

use super::multi::{Arrival, Multi};
use crate::buf::SendBuf;
use crate::executor::runtime::local::Local;
use crate::op::{Request, Transfer};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Sends; ready when the bytes were taken by the network.
///
/// Cancel safety: dropping it cancels the send; a part of the bytes may have gone out.
#[derive(Debug)]
#[must_use = "an operation does nothing until it is awaited"]
pub struct SendZeroCopy {
    request: Option<Request>,
    multi: Multi,
}

impl SendZeroCopy {
    /// Send by `request`: one of the zero-copy sends, or a plain one.
    pub(crate) fn new(request: Request) -> Self {
        Self {
            request: Some(request),
            multi: Multi::default(),
        }
    }

    /// Whether the loop that runs can send without copying.
    pub(crate) fn is_possible() -> bool {
        Local::current().engine().sends_zero_copy()
    }
}

impl Future for SendZeroCopy {
    type Output = (io::Result<usize>, Lent);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (arrival, back) = ready!(poll_next(&mut this.multi, cx, &mut this.request));
        let lent = match back {
            Some(request) => Lent::back(request),
            None => Lent(Loan::Out(std::mem::take(&mut this.multi))),
        };
        Poll::Ready((arrival.result().map(|count| count as usize), lent))
    }
}

fn poll_next(
    multi: &mut Multi,
    cx: &mut Context<'_>,
    request: &mut Option<Request>,
) -> Poll<(Arrival, Option<Request>)> {
    // A request is taken once: polled again after its end, there is nothing to do and nothing to say.
    let nothing = || Request::Nop(crate::op::Nop);
    let mut back = None;
    let submit = || request.take().unwrap_or_else(nothing);
    let polled = multi.poll_to_the_end(cx, submit, |request| back = request);
    polled.map(|arrival| (arrival, back))
}

/// The buffers of a send, ready when the network has let go of them: over TCP, when the peer has
/// acknowledged the bytes. Tells too whether they were copied after all.
///
/// Cancel safety: dropping it leaves the buffers to the driver, which frees them when the network is done.
#[derive(Debug)]
#[must_use = "the buffers come back when it is awaited"]
pub struct Lent(Loan);

/// What a zero-copy send gives back at its end.
#[derive(Debug)]
pub struct Returned {
    /// The buffers, as they were handed in.
    pub bufs: Vec<SendBuf>,
    /// How the bytes went.
    pub transfer: Transfer,
}

impl Returned {
    /// The buffer of a send of one.
    pub fn into_vec(mut self) -> Vec<u8> {
        let first = self.bufs.drain(..).next();
        first.and_then(SendBuf::into_vec).unwrap_or_default()
    }
}

#[derive(Debug)]
enum Loan {
    /// The network may still read them.
    Out(Multi),
    /// They are back.
    Back(Option<Request>),
}

impl Lent {
    /// The buffers of a send that lent nothing.
    pub(crate) fn back(request: Request) -> Self {
        Self(Loan::Back(Some(request)))
    }
}

impl Future for Lent {
    type Output = Returned;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let request = match &mut self.0 {
            Loan::Out(multi) => ready!(poll_next(multi, cx, &mut None)).1,
            Loan::Back(request) => request.take(),
        };
        self.0 = Loan::Back(None);
        let (bufs, transfer) = request.map_or((Vec::new(), Transfer::Copied), Request::into_sent);
        Poll::Ready(Returned { bufs, transfer })
    }
}
