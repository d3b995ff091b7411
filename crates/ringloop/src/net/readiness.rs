//! Readiness of a descriptor, again and again: for what has no operation of its own here.
//!
//! Owns: [`Readiness`]. Called by: programs that make the system calls themselves (libraries with a
//! descriptor of their own). Never does: read or write.

use crate::executor::Local;
use crate::executor::{Home, Multi};
use crate::op::{PollMulti, Request};
use crate::sys::interest::Interest;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::task::{Context, Poll, ready};

/// Hears of each change of a descriptor's readiness, edge-triggered.
///
/// Whoever is told reads (or writes) until `EAGAIN` before asking again: there may be no second word on what
/// is left. A word may also come for what was read meanwhile. Changes that nobody asked about yet are one.
/// Source: poll(2), `IORING_POLL_ADD_MULTI` since kernel 5.13; epoll(7).
#[derive(Debug)]
#[must_use = "nothing is waited for until it is asked"]
pub struct Readiness<'a> {
    fd: BorrowedFd<'a>,
    interest: Interest,
    multi: Multi,
    home: Option<Home>,
}

impl<'a> Readiness<'a> {
    /// Watch `fd`, which is used by no operation of this loop while this lives.
    pub fn new(fd: BorrowedFd<'a>, interest: Interest) -> Self {
        Self {
            fd,
            interest,
            multi: Multi::default(),
            home: None,
        }
    }

    /// Wait until it is ready, or changed since the last call; tells the directions.
    ///
    /// Errors: `EPERM` for what cannot be waited for, such as a regular file (epoll).
    /// Cancel safety: safe; what changed meanwhile is the next call's.
    pub async fn next(&mut self) -> io::Result<Interest> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Readiness::next`] as a poll function, for streams of one's own.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Interest>> {
        let (fd, interest, home) = (self.fd.as_raw_fd(), self.interest, &mut self.home);
        let request = || {
            *home = Some(Local::current().home());
            Request::PollMulti(PollMulti { fd, interest })
        };
        let arrival = ready!(self.multi.poll_next(cx, request));
        Poll::Ready(arrival.result().map(Interest::from_poll_mask))
    }
}

impl Drop for Readiness<'_> {
    fn drop(&mut self) {
        // The owner may close the descriptor next: the driver must not know its number then.
        drop(std::mem::take(&mut self.multi));
        if let Some(home) = &self.home {
            home.release(self.fd.as_raw_fd());
        }
    }
}
