//! One non-blocking system call, and what its result shows.
//!
//! Called by: `driver::readiness`, and `Driver` for what is tried first on the ring. Never waits;
//! keeps no state.

use crate::op::{Need, Operation, Request, raw_of};
use crate::sys::fd::RawFd;
use crate::sys::interest::Interest;
use std::io;

/// Makes the system call of a request without blocking; `None` is "would block".
pub(in crate::driver) fn attempt(request: &mut Request) -> Option<i32> {
    outcome(request.attempt())
}

/// A result in the kernel's form; `None` is "would block".
pub(super) fn outcome(result: io::Result<u32>) -> Option<i32> {
    match result {
        Ok(count) => Some(count as i32),
        Err(error) if would_block(&error) => None,
        error => Some(raw_of(error)),
    }
}

/// The direction known to block after a try: the one that did, or reading after a receive that left
/// room in its buffer.
pub(super) fn blocked_after(
    request: &mut Request,
    result: Option<i32>,
) -> Option<(RawFd, Interest)> {
    let Need::Ready(fd, interest) = request.need() else {
        return None;
    };
    let blocks = match (result, request) {
        (None, _) => true,
        (Some(count @ 1..), Request::Recv(recv)) => (count as usize) < recv.buf.as_mut_ptr().1,
        _ => false,
    };
    blocks.then_some((fd, interest))
}

pub(super) fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
