//! Completions: where an operation's results go, and what they carry.
//!
//! Owns: [`Token`], [`Sink`], [`BufferId`], [`Completion`], [`Taken`], [`Event`]. Called by: all of `driver`, and its callers.

use crate::buf::PoolKind;
use crate::op::{Key, Request};
use std::io;
use std::num::NonZeroU32;
use std::task::Waker;

/// A number chosen by the embedder; it comes back with each completion of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// Where an operation's completions go.
#[derive(Debug)]
pub enum Sink {
    /// A future: the waker is woken and the result kept until it is polled.
    Waker(Waker),
    /// An embedder: the completion comes out of [`super::Driver::next_event`] as an [`Event`].
    Handler(Token),
}

/// Names a buffer of a receive pool that holds received bytes; give it back with
/// [`super::Driver::recycle`].
// One 32-bit word, also as an `Option`: a result and its buffer are passed in a register.
#[derive(PartialEq, Eq)]
pub struct BufferId(pub(super) NonZeroU32);

impl BufferId {
    /// Bits of the number; those above them are the pool, counted from one.
    const INDEX_BITS: u32 = 28;

    /// `index` is the number of the buffer, or of the piece of a buffer.
    #[inline]
    pub(super) fn new(pool: PoolKind, index: u32) -> Self {
        debug_assert!(index >> Self::INDEX_BITS == 0);
        let index = index & ((1 << Self::INDEX_BITS) - 1);
        let pool = (pool as u32 + 1) << Self::INDEX_BITS;
        // Its upper bits are never 0.
        Self(NonZeroU32::new(pool | index).unwrap_or(NonZeroU32::MAX))
    }

    /// The pool's number.
    #[inline]
    pub(super) fn pool(&self) -> usize {
        (self.0.get() >> Self::INDEX_BITS) as usize - 1
    }

    #[inline]
    pub(super) fn index(&self) -> u32 {
        self.0.get() & ((1 << Self::INDEX_BITS) - 1)
    }
}

impl std::fmt::Debug for BufferId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferId({}, {})", self.pool(), self.index())
    }
}

/// One result of an operation.
#[derive(Debug)]
pub struct Completion {
    /// As the kernel reports it: a count, a descriptor, or a negated errno.
    pub result: i32,
    /// Another completion of the same operation will come.
    pub more: bool,
    /// The pool buffer that holds the received bytes.
    pub buffer: Option<BufferId>,
    /// The request, with its buffers, on the last completion.
    pub request: Option<Request>,
}

impl Completion {
    /// The result as an [`io::Result`].
    pub fn result(&self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }
}

/// One result of a future's operation.
#[derive(Debug)]
pub(crate) struct Taken {
    /// As [`Completion::result`].
    pub result: i32,
    /// Another one will come.
    pub more: bool,
    /// As [`Completion::buffer`].
    pub buffer: Option<BufferId>,
}

impl Taken {
    /// The result as an [`io::Result`].
    #[inline]
    pub fn result(&self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }
}

/// A completion for the embedder.
#[derive(Debug)]
pub struct Event {
    /// The embedder's number.
    pub token: Token,
    /// The operation.
    pub key: Key,
    /// Its result.
    pub completion: Completion,
}
