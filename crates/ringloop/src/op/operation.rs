//! What an operation is to a driver: both of its forms, and what its last completion becomes.
//!
//! Owns: [`Operation`], [`Need`], [`Shape`], [`Ended`], [`Completable`]. Called by: each operation, which implements them; the
//! drivers, through `Request`.

use super::key::Key;
use crate::buf::PoolKind;
use crate::limits;
use crate::sys::interest::Interest;
use crate::sys::uring::Feature;
use crate::sys::uring::abi::Sqe;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// In place of a descriptor: none.
pub(crate) const NO_FD: RawFd = -1;

/// What the readiness driver has to wait for before it tries an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: the call never blocks.
    Nothing,
    /// The descriptor to be ready.
    Ready(RawFd, Interest),
    /// The monotonic clock to pass this many nanoseconds.
    Clock(u64),
    /// Another operation to be cancelled.
    Cancel(Key),
    /// A thread that may block, for a call on these descriptors ([`NO_FD`]: none). First it is tried
    /// without.
    Pool([RawFd; 2]),
}

/// How an operation goes on after a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One completion, and it is over.
    Once,
    /// As `Once`, but the ring driver asks the request after each completion whether it goes on.
    Retried,
    /// As `Once`, and the completion carries a buffer of this pool.
    OnceBuffer(PoolKind),
    /// Completes until it fails: the ring keeps it armed, and the driver re-arms it.
    Multi,
    /// As `Multi`, and each completion carries a buffer of this pool.
    MultiBuffer(PoolKind),
    /// Level-triggered: armed again after each completion was handled.
    Level,
    /// Edge-triggered: completes at changes; completions that nobody took yet are one.
    Edge,
}

impl Shape {
    /// The pool whose buffers its completions carry.
    pub const fn pool(self) -> Option<PoolKind> {
        match self {
            Self::OnceBuffer(kind) | Self::MultiBuffer(kind) => Some(kind),
            Self::Once | Self::Retried | Self::Multi | Self::Level | Self::Edge => None,
        }
    }

    /// Whether it is over with one result on the readiness driver.
    pub const fn is_single(self) -> bool {
        matches!(self, Self::Once | Self::Retried)
    }

    /// Completions that may wait for a future before the operation is paused until they are taken.
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

/// One operation in both forms.
pub(crate) trait Operation {
    /// Ring form: fill the submission entry. Called with the request in its slot (invariant 1).
    fn prepare(&mut self, sqe: &mut Sqe);

    /// Readiness form: what to wait for. It may change by an attempt that would have blocked.
    fn need(&self) -> Need;

    /// Readiness form: the system call, without blocking. `WouldBlock` means "wait and try again".
    fn attempt(&mut self) -> io::Result<u32> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Ring form: what a try that would have blocked has learnt is of no use.
    fn forget_attempt(&mut self) {}

    /// Readiness form of what needs a pool thread: the system call, on that thread.
    fn work(&mut self) -> io::Result<u32> {
        self.attempt()
    }

    /// Ring form: what the ring must have beyond the required; asked of what needs a pool thread on
    /// the other driver. Without it the driver calls `work` itself.
    fn wants(&self) -> Option<Feature> {
        None
    }

    /// How it goes on after a completion.
    fn shape(&self) -> Shape {
        Shape::Once
    }

    /// Ring form of what is [`Shape::Retried`]: take note of a completion, and tell whether the operation is to be armed
    /// again for what it needs next.
    fn goes_on(&mut self, _result: i32) -> bool {
        false
    }

    /// Whether the driver may arm it again by its descriptor's number, where its shape goes on.
    fn rearms(&self) -> bool {
        true
    }

    /// Whether a link ends with this result. The kernel's rule: after an error, and after a file transfer
    /// that moved less than it was asked to.
    fn breaks_link(&mut self, result: i32) -> bool {
        result < 0
    }

    /// Take note of the result before the request is handed back; returns it in the words that both
    /// drivers share.
    fn finish(&mut self, result: i32) -> i32 {
        result
    }

    /// Whether the kernel may touch memory of the request, or of the pool, while it is in flight. What
    /// it copies when the entry is submitted (an address, a time) does not count.
    fn exposes_memory(&self) -> bool {
        false
    }

    /// Give back a result that nobody will take (invariant 2).
    fn discard(&mut self, _result: i32) {}
}

/// An operation whose result, where it succeeds, is a new descriptor.
pub trait YieldsDescriptor {}

/// What an operation ended with. Only a driver makes one: a descriptor in it is owned by whoever has it.
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
    /// A count or descriptor, or the error; and the request, with its buffers, unless the runtime was torn down under
    /// the operation.
    #[inline]
    pub fn into_parts(self) -> (io::Result<u32>, Option<T>) {
        (self.result, self.request)
    }

    /// Of an operation that was over before it was submitted.
    pub(crate) fn of(result: i32, request: T) -> Self {
        let result = u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Self {
            result,
            request: Some(request),
        }
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
    /// The descriptor, or the error; a count of another operation's is none.
    pub(super) fn into_descriptor(self) -> io::Result<OwnedFd> {
        let fd = self.result?;
        if self.request.is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: only a driver makes what an operation has ended with; where one that yields descriptors succeeds, nobody
        // else knows this one.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

/// An operation of one completion, which can be awaited.
pub trait Completable: Sized + Unpin {
    /// What awaiting it yields.
    type Output;

    /// The form to submit: a future takes one completion.
    #[must_use]
    fn single(self) -> Self {
        self
    }

    /// The output of the completion.
    fn complete(ended: Ended<Self>) -> Self::Output;
}
