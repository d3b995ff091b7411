//! The interface of operations to a driver: both forms, and the output of the last completion.
//!
//! Owns: [`Operation`], [`Need`], [`Shape`], [`Ended`], [`Completable`]. Called by: each operation, which implements them; the
//! drivers, through `Request`.

use super::key::Key;
use crate::buf::PoolKind;
use crate::limits;
use crate::sys::fd::{FromRawFd, OwnedFd, RawFd};
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::uring::Feature;
use crate::sys::uring::abi::Sqe;
use std::io;

/// A result in the kernel's form: a count, a descriptor, or a negated errno.
pub(crate) fn raw_of(result: io::Result<u32>) -> i32 {
    result.map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |count| count as i32)
}

/// The inverse.
#[inline]
pub(crate) fn result_of(raw: i32) -> io::Result<u32> {
    u32::try_from(raw).map_err(|_| io::Error::from_raw_os_error(-raw))
}

/// No descriptor.
pub(crate) const NO_FD: RawFd = -1;

/// What the readiness driver waits for before it tries an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: the call never blocks.
    Nothing,
    /// Readiness of the descriptor.
    Ready(RawFd, Interest),
    /// The monotonic clock, in nanoseconds.
    Clock(u64),
    /// Cancelling another operation.
    Cancel(Key),
    /// A pool thread, for a blocking call on these descriptors ([`NO_FD`]: none). The call is first
    /// tried without blocking.
    Pool([RawFd; 2]),
}

/// How an operation continues after a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Single-shot: ends with its first completion.
    Once,
    /// As `Once`, but the ring driver asks the request after each completion if it has ended.
    Retried,
    /// As `Once`; the completion carries a buffer of this pool.
    OnceBuffer(PoolKind),
    /// Multishot: completes until it fails. The ring keeps it armed, and the driver re-arms it.
    Multi,
    /// As `Multi`; each completion carries a buffer of this pool.
    MultiBuffer(PoolKind),
    /// Level-triggered: re-armed after each completion was handled.
    Level,
    /// Edge-triggered: completes at changes; completions not taken yet merge into one.
    Edge,
}

impl Shape {
    /// The pool of its completions' buffers.
    pub const fn pool(self) -> Option<PoolKind> {
        match self {
            Self::OnceBuffer(kind) | Self::MultiBuffer(kind) => Some(kind),
            Self::Once | Self::Retried | Self::Multi | Self::Level | Self::Edge => None,
        }
    }

    /// True if it ends with its first result on the readiness driver.
    pub const fn is_single(self) -> bool {
        matches!(self, Self::Once | Self::Retried)
    }

    /// Completions that may be queued for a future before the operation is paused until they are
    /// taken.
    pub const fn untaken_max(self) -> usize {
        match self {
            Self::Once | Self::Retried | Self::OnceBuffer(_) | Self::Level => usize::MAX,
            Self::Multi => limits::UNTAKEN_CONNECTIONS_MAX,
            Self::MultiBuffer(PoolKind::Streams | PoolKind::Singles) => {
                limits::UNTAKEN_RECEIVES_MAX
            }
            Self::MultiBuffer(PoolKind::Bundles) => limits::UNTAKEN_BUNDLED_MAX,
            Self::MultiBuffer(PoolKind::Pieces) => limits::UNTAKEN_PIECES_MAX,
            Self::MultiBuffer(PoolKind::Datagrams) => limits::UNTAKEN_DATAGRAMS_MAX,
            Self::Edge => 1,
        }
    }
}

/// One operation, in both forms.
pub(crate) trait Operation {
    /// True if the kernel may access memory of the request, or of the pool, while it is in flight.
    /// Data that it copies at submission (an address, a time) does not count.
    const EXPOSES_MEMORY: bool = false;

    /// Ring form: fills the submission entry. Called with the request in its slot (invariant 1).
    fn prepare(&mut self, sqe: &mut Sqe);

    /// Readiness form: what to wait for. May change after an attempt that would have blocked.
    fn need(&self) -> Need;

    /// Readiness form: true if the descriptor's owner may close it at any time, without a word to the
    /// driver: a user's file that is polled, spliced or read. Its registration ends with each wait.
    fn is_borrowed(&self) -> bool {
        false
    }

    /// Readiness form: the system call, without blocking. `WouldBlock` means "wait and try again".
    fn attempt(&mut self) -> io::Result<u32> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Ring form: resets what an attempt that would have blocked has changed.
    fn forget_attempt(&mut self) {}

    /// Readiness form on a pool thread: the system call, on that thread.
    fn work(&mut self) -> io::Result<u32> {
        self.attempt()
    }

    /// Ring form: an optional feature of the ring that it needs; only for operations that otherwise
    /// use a pool thread. Without it the driver calls `work` itself.
    fn wants(&self) -> Option<Feature> {
        None
    }

    /// How it continues after a completion.
    fn shape(&self) -> Shape {
        Shape::Once
    }

    /// Ring form of [`Shape::Retried`]: handles a completion, and returns true if the operation is
    /// to be re-armed for its next step.
    fn goes_on(&mut self, _result: i32) -> bool {
        false
    }

    /// True if the driver may re-arm it by its descriptor's number.
    fn rearms(&self) -> bool {
        true
    }

    /// True if a link ends with this result. The kernel's rule: after an error, and after a file
    /// transfer that moved less than it was asked to.
    fn breaks_link(&mut self, result: i32) -> bool {
        result < 0
    }

    /// Handles the result before the request is returned; maps it to the form that both drivers
    /// share.
    fn finish(&mut self, result: i32) -> i32 {
        result
    }

    /// Closes or recycles a result that is not delivered (invariant 2).
    fn discard(&mut self, _result: i32) {}
}

/// An operation that yields a new descriptor on success.
pub trait YieldsDescriptor {}

/// The end of an operation. Only a driver makes one: it owns the descriptor in it.
///
/// ```compile_fail,E0451
/// ringloop::embed::op::Outcome { result: Ok(7), request: None };
/// ```
#[derive(Debug)]
pub struct Ended<T> {
    /// A count or descriptor, or the error.
    pub(crate) result: io::Result<u32>,
    /// The request, with its buffers.
    pub(crate) request: Option<T>,
}

impl<T> Ended<T> {
    /// A count or descriptor, or the error; and the request, with its buffers, unless the runtime
    /// was closed under the operation.
    #[inline]
    pub fn into_parts(self) -> (io::Result<u32>, Option<T>) {
        (self.result, self.request)
    }

    /// The end of an operation that completed before it was submitted.
    pub(crate) fn of(result: i32, request: T) -> Self {
        Self { result: result_of(result), request: Some(request) }
    }

    /// The count of bytes, or the error, and what `parts` takes out of the request: its buffers.
    #[inline]
    pub(super) fn count_and<B: Default>(
        self,
        parts: impl FnOnce(T) -> B,
    ) -> (io::Result<usize>, B) {
        let bufs = self.request.map(parts).unwrap_or_default();
        (self.result.map(|count| count as usize), bufs)
    }
}

impl<T: YieldsDescriptor> Ended<T> {
    /// The descriptor, or the error; a count is not taken for a descriptor.
    pub(super) fn into_descriptor(self) -> io::Result<OwnedFd> {
        let fd = self.result?;
        if self.request.is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: only a driver makes an `Ended`; if an operation that yields descriptors succeeds,
        // this is the only copy of the number.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

/// A single-shot operation, which can be awaited.
pub trait Completable: Sized + Unpin {
    /// Output of the awaited operation.
    type Output;

    /// The form to submit: a future takes one completion.
    #[must_use]
    fn single(self) -> Self {
        self
    }

    /// The output of the completion.
    fn complete(ended: Ended<Self>) -> Self::Output;
}

/// Makes an operation complete with the count of bytes and the request's buffers.
macro_rules! counted {
    ($op:ident, $bufs:ty, $parts:expr) => {
        impl super::operation::Completable for $op {
            type Output = (std::io::Result<usize>, $bufs);

            fn complete(ended: super::operation::Ended<Self>) -> Self::Output {
                ended.count_and($parts)
            }
        }
    };
}
pub(super) use counted;
