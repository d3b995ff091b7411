//! Receives and sends on the caller's memory, by operations of the ring.
//!
//! Owns: the borrow, from the operation's submission to its last completion. Called by: `socket`.
//! It does not return while the kernel has the memory.
//!
//! Byte path: from the kernel to the caller's slice, and back; nothing is copied.
//!
//! A future may be dropped in any state, so a future's operation owns its memory. A parked
//! coroutine can neither touch its slice nor drop it nor leave its frame, so it can lend the slice.
//!
//! # Invariants
//! 1. A slice is lent from the submission of its operation to its last completion, and [`lend`]
//!    does not return before: a coroutine that is cancelled meanwhile cancels the operation and
//!    stays until it ends ([`reclaim`]); at the end of the runtime the scheduler turns the loop for
//!    it; nothing on the way panics. Unwinding through the frame aborts the process
//!    ([`AbortOnUnwind`]), as does a scheduler that ends with a slice lent.
//! 2. The request comes back with the last completion, and with nothing else: an outcome without
//!    one says nothing of what the kernel has, and aborts the process. (An operation keeps its
//!    driver alive, so there is none.)

use crate::scheduler::Uninterruptible;
use crate::wait::{block_on_uninterruptible, park_on_op};
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::embed::op::{Kind, Outcome, Recv, Request, Send};
use ringloop::embed::sys::fd::RawFd;
use ringloop::embed::sys::libc;
use ringloop::embed::{Local, Op};
use std::io;
use std::mem;
use std::process;
use std::ptr;

/// A receive or send on a slice of the caller's.
#[derive(Debug)]
struct BorrowedIo {
    fd: RawFd,
    is_send: bool,
    at: *mut u8,
    len: usize,
}

/// The memory is its owner's again when `lend` returns.
unsafe fn release(_: *mut ()) {}

impl Kind for BorrowedIo {
    type Output = io::Result<usize>;

    fn into_request(self) -> Request {
        if self.is_send {
            // SAFETY: invariant 1, of a shared slice.
            let buf = unsafe { SendBuf::from_raw(self.at, self.len, ptr::null_mut(), release) };
            Request::Send(Send { fd: self.fd, buf })
        } else {
            // SAFETY: invariant 1, of an exclusive slice.
            let buf = unsafe { RecvBuf::from_raw(self.at, self.len, ptr::null_mut(), release) };
            Request::Recv(Recv { fd: self.fd, buf })
        }
    }

    #[inline]
    fn output(outcome: Outcome) -> Self::Output {
        let (result, request) = outcome.into_parts();
        let Some(request) = request else {
            // Invariant 2.
            process::abort();
        };
        // Its drop would do nothing, after finding out which request it is.
        mem::forget(request);
        result.map(|count| count as usize)
    }
}

/// Upholds invariant 1 if something unwinds through the frame.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    #[cold]
    fn drop(&mut self) {
        process::abort();
    }
}

/// Parks until some bytes were received into the slice.
///
/// `None`: nothing was received, because the coroutine is cancelled, or there is none.
/// `is_drained`: the socket is known to be empty, and is polled first.
#[inline(always)]
pub(super) fn receive(fd: RawFd, into: &mut [u8], is_drained: bool) -> Option<io::Result<usize>> {
    let receive = BorrowedIo { fd, is_send: false, at: into.as_mut_ptr(), len: into.len() };
    lend(if is_drained { Op::poll_first(receive) } else { Op::new(receive) })
}

/// Parks until some bytes of the slice were sent; `None` as [`receive`].
#[inline(always)]
pub(super) fn send(fd: RawFd, from: &[u8]) -> Option<io::Result<usize>> {
    lend(Op::new(BorrowedIo { fd, is_send: true, at: from.as_ptr().cast_mut(), len: from.len() }))
}

#[inline(always)]
fn lend(op: Op<BorrowedIo>) -> Option<io::Result<usize>> {
    let guard = AbortOnUnwind;
    let done = match park_on_op(op) {
        Ok(output) => Some(output),
        Err(op) => reclaim(op),
    };
    mem::forget(guard);
    done
}

/// Cancels the operation of a cancelled coroutine and waits for its end. Bytes moved by then count.
#[cold]
fn reclaim(op: Op<BorrowedIo>) -> Option<io::Result<usize>> {
    // Without a key it was not submitted.
    let key = op.key()?;
    if let Some(local) = Local::try_current() {
        local.engine().driver_mut().cancel(key);
    }
    match block_on_uninterruptible(Uninterruptible::Kernel, op) {
        Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => None,
        done => Some(done),
    }
}
