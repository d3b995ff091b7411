//! A wait for one operation, which the host begins and looks at on the loop's own stack.
//!
//! Owns: [`ParkedOp`], an operation on the stack of the coroutine that waits for it. Called by: `net` (which asks) and
//! `switch` (which looks). Never does: run code that is not the engine's, which could want to park.
//!
//! The frames of a poll are a dozen lines of the cache deep. On the stack of a coroutine they are memory that was not
//! touched since its last message, one of a thousand; on the loop's stack they are always at hand. So a coroutine
//! leaves with what it asks for, and comes back when it is there:
//!
//! ```text
//!   the coroutine's stack                          the loop's stack
//!   ParkedOp { op } ── suspend(ParkedOpRef) ───────────────▶ Fiber::is_answered: submits the operation
//!                                                  … woken: is_answered takes its output
//!   output ◀────────────── Fiber::resume ─────────
//! ```
//!
//! # Invariants
//! 1. An [`ParkedOpRef`] names an [`ParkedOp`] on the stack of the coroutine that left with it. Until that coroutine is resumed it
//!    stays where it is, and whoever has the fiber is the only one to touch it.
//! 2. Its waker is the coroutine's, which lies at the root of the same stack.

use crate::switch::{Suspend, suspend, with_parkable};
use ringloop::executor::Op;
use ringloop::op::Kind;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

/// What a coroutine left its stack for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParkedOpRef(NonNull<OpHeader>);

/// The part of an [`ParkedOp`] that does not depend on its operation.
struct OpHeader {
    poll: unsafe fn(NonNull<OpHeader>) -> bool,
    waker: NonNull<Waker>,
}

/// An operation that is asked for, and what it ended with: one line of the cache where both are small.
#[repr(C, align(64))]
struct ParkedOp<K: Kind> {
    head: OpHeader,
    /// Over, with nothing left to drop, once there is an output.
    op: ManuallyDrop<Op<K>>,
    output: Option<K::Output>,
}

impl ParkedOpRef {
    /// Where it lies.
    #[inline(always)]
    pub fn address(self) -> *const i8 {
        self.0.as_ptr().cast_const().cast()
    }

    /// Begin the operation, or look at it; returns whether its output is there, which is said once.
    ///
    /// # Safety
    /// The coroutine that left with it has not been resumed since.
    #[inline]
    pub unsafe fn poll(self) -> bool {
        // SAFETY: invariant 1, by the caller.
        let poll = unsafe { self.0.as_ref() }.poll;
        // SAFETY: the same; the function is the one for this operation.
        unsafe { poll(self.0) }
    }
}

/// # Safety
/// `head` is that of an `ParkedOp<K>`, and invariant 1 holds.
unsafe fn poll<K: Kind>(head: NonNull<OpHeader>) -> bool {
    // SAFETY: by the caller; the head is the first field (`repr(C)`).
    let asking = unsafe { head.cast::<ParkedOp<K>>().as_mut() };
    // SAFETY: invariant 2.
    let waker = unsafe { asking.head.waker.as_ref() };
    match Pin::new(&mut *asking.op).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(output) => {
            asking.output = Some(output);
            true
        }
        Poll::Pending => false,
    }
}

/// Park until the operation is over.
///
/// It comes back where the coroutine was cancelled: in flight, or not begun if that was so before. The same outside of a
/// coroutine. Nothing unwinds here.
#[inline(always)]
pub(crate) fn ask<K: Kind>(op: Op<K>) -> Result<K::Output, Op<K>> {
    let waker = with_parkable(|frame| {
        let frame = frame.filter(|frame| !frame.head().is_cancelled())?;
        Some(NonNull::from(&frame.waker))
    });
    let Some(waker) = waker else {
        return Err(op);
    };
    let mut asking = ParkedOp {
        head: OpHeader {
            poll: poll::<K>,
            waker,
        },
        op: ManuallyDrop::new(op),
        output: None,
    };
    suspend(Suspend::ParkedOpRef(ParkedOpRef(
        NonNull::from(&mut asking).cast(),
    )));
    match asking.output {
        Some(output) => Ok(output),
        None => Err(ManuallyDrop::into_inner(asking.op)),
    }
}
