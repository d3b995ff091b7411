//! Receive into the caller's memory and send out of it, by operations of the ring.
//!
//! Owns: the loan, from the operation's beginning to its end. Called by: `socket`. Never does: come back while the kernel
//! has the memory.
//!
//! Byte path: from the kernel to the caller's slice, and back; nothing is copied.
//!
//! A future may be dropped in any state, so futures lend memory that the operation owns. A coroutine that is parked
//! cannot touch its slice, let go of it, or leave its frame, so it can lend the slice itself.
//!
//! # Invariants
//! 1. A slice is lent from the submission of its operation to its last completion, and [`lend`] is not left before: a
//!    coroutine that is cancelled meanwhile has the operation cancelled and stays for its end ([`reclaim`]); at the end of the
//!    runtime its host turns the loop for it (`host`); nothing on the way panics. A frame that is left all the same aborts
//!    the process ([`AbortOnUnwind`]), as does a host that ends with a slice lent.
//! 2. The request comes back with the last completion, and with nothing else: an outcome without one says nothing of
//!    what the kernel has, and aborts the process. (A future of the engine's keeps its driver alive: there is none.)

use super::socket::Direction;
use crate::parked_op::ask;
use crate::scheduler;
use crate::wait::wait_out;
use ringloop::buf::{RecvBuf, SendBuf};
use ringloop::executor::{Local, Op};
use ringloop::op::{Kind, Outcome, Recv, Request, Send};
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::ptr;

/// A receive or send on lent memory.
#[derive(Debug)]
struct BorrowedIo {
    fd: RawFd,
    way: Direction,
    at: *mut u8,
    len: usize,
}

/// Of memory that goes back to its owner by `lend`'s return.
unsafe fn release(_: *mut ()) {}

impl Kind for BorrowedIo {
    type Output = io::Result<usize>;

    fn into_request(self) -> Request {
        match self.way {
            Direction::Read => {
                // SAFETY: invariant 1, of an exclusive slice.
                let buf = unsafe { RecvBuf::from_raw(self.at, self.len, ptr::null_mut(), release) };
                Request::Recv(Recv { fd: self.fd, buf })
            }
            Direction::Write => {
                // SAFETY: invariant 1, of a shared slice.
                let buf = unsafe { SendBuf::from_raw(self.at, self.len, ptr::null_mut(), release) };
                Request::Send(Send { fd: self.fd, buf })
            }
        }
    }

    #[inline]
    fn output(outcome: Outcome) -> Self::Output {
        let (result, request) = outcome.into_parts();
        let Some(request) = request else {
            // Invariant 2.
            std::process::abort();
        };
        // Its release does nothing, at the price of finding out which request it is.
        mem::forget(request);
        result.map(|count| count as usize)
    }
}

/// Invariant 1, for whoever unwinds through the frame that has it.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    #[cold]
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Park until some bytes were received into the slice; `None`: nothing was, because the coroutine is cancelled, or there
/// is none. A socket that is known to be empty is waited for first.
#[inline(always)]
pub(super) fn receive(fd: RawFd, into: &mut [u8], is_empty: bool) -> Option<io::Result<usize>> {
    let receive = BorrowedIo {
        fd,
        way: Direction::Read,
        at: into.as_mut_ptr(),
        len: into.len(),
    };
    lend(if is_empty {
        Op::patient(receive)
    } else {
        Op::new(receive)
    })
}

/// Park until some bytes of the slice were sent; `None` as [`receive`].
#[inline(always)]
pub(super) fn send(fd: RawFd, from: &[u8]) -> Option<io::Result<usize>> {
    lend(Op::new(BorrowedIo {
        fd,
        way: Direction::Write,
        at: from.as_ptr().cast_mut(),
        len: from.len(),
    }))
}

#[inline(always)]
fn lend(op: Op<BorrowedIo>) -> Option<io::Result<usize>> {
    let held = AbortOnUnwind;
    let done = match ask(op) {
        Ok(output) => Some(output),
        Err(op) => reclaim(op),
    };
    mem::forget(held);
    done
}

/// Have the operation of a cancelled coroutine end, and wait for that; what it has moved by then counts.
#[cold]
fn reclaim(op: Op<BorrowedIo>) -> Option<io::Result<usize>> {
    // One that has not begun has lent nothing.
    let key = op.key()?;
    let _reclaiming = scheduler::reclaim();
    if let Some(local) = Local::try_current() {
        local.engine().driver_mut().cancel(key);
    }
    match wait_out(op) {
        Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => None,
        done => Some(done),
    }
}
