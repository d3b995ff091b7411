//! An operation on the stack of the parked coroutine that waits for it.
//!
//! Owns: [`ParkedOp`]. Called by: `wait` (makes it and parks), `switch` (polls it for the
//! scheduler). It polls the engine's operations only: other futures could want to park.
//!
//! A poll's frames touch a dozen cache lines. On the coroutine's stack, one of a thousand, they
//! would be cold; on the loop's stack they are warm. So the coroutine suspends with a pointer to
//! its operation, and is resumed with the output:
//!
//! ```text
//!   the coroutine's stack                          the loop's stack
//!   ParkedOp { op } ── suspend(Op) ──────────────▶ Fiber::poll_op: submits the operation
//!                                                  … woken: Fiber::poll_op stores the output
//!   output ◀────────────── Fiber::resume ─────────
//! ```
//!
//! # Invariants
//! 1. A [`ParkedOpRef`] points to a [`ParkedOp`] on the stack of the coroutine that suspended with
//!    it. The operation neither moves nor is touched by the coroutine until that is resumed.
//! 2. Its waker is the coroutine's, at the root of the same stack.

use ringloop::embed::Op;
use ringloop::embed::op::Kind;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

/// A pointer to a [`ParkedOp`] of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParkedOpRef(NonNull<OpHeader>);

struct OpHeader {
    poll: unsafe fn(NonNull<OpHeader>) -> bool,
    waker: NonNull<Waker>,
}

/// An operation and its output: one cache line if both are small.
#[repr(C, align(64))]
pub(crate) struct ParkedOp<K: Kind> {
    header: OpHeader,
    /// Once there is an output it is over, and has nothing to drop.
    op: ManuallyDrop<Op<K>>,
    output: Option<K::Output>,
}

impl<K: Kind> ParkedOp<K> {
    /// An operation that wakes `waker`, which lies at the root of the caller's stack.
    #[inline(always)]
    pub fn new(op: Op<K>, waker: NonNull<Waker>) -> Self {
        Self {
            header: OpHeader { poll: poll::<K>, waker },
            op: ManuallyDrop::new(op),
            output: None,
        }
    }

    /// The pointer to suspend with.
    #[inline(always)]
    pub fn as_ref(&mut self) -> ParkedOpRef {
        ParkedOpRef(NonNull::from(self).cast())
    }

    /// The output, or the operation if it is not over.
    #[inline(always)]
    pub fn into_output(self) -> Result<K::Output, Op<K>> {
        match self.output {
            Some(output) => Ok(output),
            None => Err(ManuallyDrop::into_inner(self.op)),
        }
    }
}

impl ParkedOpRef {
    /// For a prefetch, on processors that have a stable intrinsic for it.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    #[inline(always)]
    pub fn address(self) -> *const i8 {
        self.0.as_ptr().cast_const().cast()
    }

    /// Submits the operation, or polls it; `true`, once, if its output is stored.
    ///
    /// # Safety
    /// The coroutine that suspended with it has not been resumed since.
    #[inline]
    pub unsafe fn poll(self) -> bool {
        // SAFETY: invariant 1, by the caller.
        let poll = unsafe { self.0.as_ref() }.poll;
        // SAFETY: the same; the function is the one for this operation.
        unsafe { poll(self.0) }
    }
}

/// # Safety
/// `header` is that of a `ParkedOp<K>`, and invariant 1 holds.
unsafe fn poll<K: Kind>(header: NonNull<OpHeader>) -> bool {
    // SAFETY: the caller's; the header is the first field (`repr(C)`).
    let parked = unsafe { header.cast::<ParkedOp<K>>().as_mut() };
    // SAFETY: invariant 2.
    let waker = unsafe { parked.header.waker.as_ref() };
    match Pin::new(&mut *parked.op).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(output) => {
            parked.output = Some(output);
            true
        }
        Poll::Pending => false,
    }
}
