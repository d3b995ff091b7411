//! Readiness of a descriptor, by a multishot poll.
//!
//! Owns: [`Readiness`]. Called by: code that makes the system calls itself, such as libraries with
//! their own descriptor. It neither reads nor writes.

use crate::executor::Local;
use crate::executor::{Multi, WeakLocal};
use crate::op::{PollMulti, Request};
use crate::sys::fd::{AsRawFd, BorrowedFd};
use crate::sys::interest::Interest;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

/// Reports each change of a descriptor's readiness, edge-triggered.
///
/// Read (or write) until `EAGAIN` before the next call: the rest may not be reported again. A
/// report may be about bytes already read. Changes between two calls are reported once. See
/// poll(2), `IORING_POLL_ADD_MULTI` since kernel 5.13; epoll(7).
///
/// On Windows a call takes it that `EAGAIN` was met, and reports what is ready, changed or not: watch
/// for [`Interest::WRITE`] only while there is something to write.
#[derive(Debug)]
#[must_use = "nothing is reported until next() is awaited"]
pub struct Readiness<'a> {
    fd: BorrowedFd<'a>,
    interest: Interest,
    multi: Multi,
    weak_local: Option<WeakLocal>,
}

impl<'a> Readiness<'a> {
    /// Watches `fd`, which no other operation of this loop may use meanwhile.
    pub fn new(fd: BorrowedFd<'a>, interest: Interest) -> Self {
        Self { fd, interest, multi: Multi::default(), weak_local: None }
    }

    /// Waits until it is ready, or changed since the last call; returns the directions.
    ///
    /// # Errors
    /// `EPERM` for files that cannot be polled, such as a regular file (epoll).
    ///
    /// # Cancel safety
    /// Cancel safe: the next call reports the change.
    pub async fn next(&mut self) -> io::Result<Interest> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Readiness::next`] as a poll function.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Interest>> {
        let (fd, interest, weak_local) = (self.fd.as_raw_fd(), self.interest, &mut self.weak_local);
        let request = || {
            *weak_local = Some(Local::current().downgrade());
            Request::PollMulti(PollMulti { fd, interest })
        };
        let arrival = ready!(self.multi.poll_next(cx, request));
        Poll::Ready(arrival.result().map(Interest::from_poll_mask))
    }
}

impl Drop for Readiness<'_> {
    fn drop(&mut self) {
        // The owner may close the descriptor next: the driver must release its number before.
        drop(std::mem::take(&mut self.multi));
        if let Some(weak_local) = &self.weak_local {
            weak_local.release(self.fd.as_raw_fd());
        }
    }
}
