//! A zero-copy send as two futures: the first yields the number of bytes sent, the second returns
//! the buffers once the kernel has released them.
//!
//! Owns: [`SendZeroCopy`], [`ZeroCopyBufs`]. Called by: `net`, which falls back to a plain send.

use super::multi::{Arrival, Multi};
use crate::buf::SendBuf;
use crate::executor::runtime::local::Local;
use crate::op::{Request, Transfer};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A send; ready when the kernel has accepted the bytes.
///
/// # Cancel safety
/// Dropping it cancels the send; part of the bytes may have been sent.
#[derive(Debug)]
#[must_use = "an operation does nothing until it is awaited"]
pub struct SendZeroCopy {
    request: Option<Request>,
    multi: Multi,
}

impl SendZeroCopy {
    /// Sends by `request`: one of the zero-copy sends, or a plain one.
    pub(crate) fn new(request: Request) -> Self {
        Self { request: Some(request), multi: Multi::default() }
    }

    /// True if the current loop can send without copying.
    pub(crate) fn is_possible() -> bool {
        Local::current().engine().sends_zero_copy()
    }
}

impl Future for SendZeroCopy {
    type Output = (io::Result<usize>, ZeroCopyBufs);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (arrival, back) = ready!(poll_next(&mut this.multi, cx, &mut this.request));
        let bufs = match back {
            Some(request) => ZeroCopyBufs::back(request),
            None => ZeroCopyBufs(Release::Pending(std::mem::take(&mut this.multi))),
        };
        Poll::Ready((arrival.result().map(|count| count as usize), bufs))
    }
}

fn poll_next(
    multi: &mut Multi,
    cx: &mut Context<'_>,
    request: &mut Option<Request>,
) -> Poll<(Arrival, Option<Request>)> {
    // A request is taken once: polled again after its end, it has no effect and no result.
    let nothing = || Request::Nop(crate::op::Nop);
    let mut back = None;
    let submit = || request.take().unwrap_or_else(nothing);
    let polled = multi.poll_to_the_end(cx, submit, |request| back = request);
    polled.map(|arrival| (arrival, back))
}

/// The buffers of a send, ready when the kernel has released them: over TCP, when the peer has
/// acknowledged the bytes. Also reports if they were copied after all.
///
/// # Cancel safety
/// Dropping it leaves the buffers to the driver, which frees them when the kernel has released them.
#[derive(Debug)]
#[must_use = "the buffers come back when it is awaited"]
pub struct ZeroCopyBufs(Release);

/// The end of a zero-copy send.
#[derive(Debug)]
pub struct Returned {
    /// The buffers that were sent.
    pub bufs: Vec<SendBuf>,
    /// How the bytes were transferred.
    pub transfer: Transfer,
}

impl Returned {
    /// The buffer of a send with one buffer.
    pub fn into_vec(mut self) -> Vec<u8> {
        let first = self.bufs.drain(..).next();
        first.and_then(SendBuf::into_vec).unwrap_or_default()
    }
}

#[derive(Debug)]
enum Release {
    /// The kernel may still read them.
    Pending(Multi),
    /// The kernel has released them.
    Done(Option<Request>),
}

impl ZeroCopyBufs {
    /// The buffers of a send that has ended already.
    pub(crate) fn back(request: Request) -> Self {
        Self(Release::Done(Some(request)))
    }
}

impl Future for ZeroCopyBufs {
    type Output = Returned;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let request = match &mut self.0 {
            Release::Pending(multi) => ready!(poll_next(multi, cx, &mut None)).1,
            Release::Done(request) => request.take(),
        };
        self.0 = Release::Done(None);
        let (bufs, transfer) = request.map_or((Vec::new(), Transfer::Copied), Request::into_sent);
        Poll::Ready(Returned { bufs, transfer })
    }
}
