//! Completions: where an operation's results go, and what they carry.
//!
//! Owns: [`Token`], [`Sink`], [`Completion`], [`Taken`], [`Event`]. Called by: all of `driver`, and its callers.

use crate::op::{Key, Request, result_of};
use crate::sys::pool::PoolBuffer;
use std::io;
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

/// One result of an operation.
#[derive(Debug)]
pub struct Completion {
    /// As the kernel reports it: a count, a descriptor, or a negated errno.
    pub result: i32,
    /// Another completion of the same operation will come.
    pub more: bool,
    /// The received bytes, of a receive into a pool.
    pub buffer: Option<PoolBuffer>,
    /// The request, with its buffers, on the last completion.
    pub request: Option<Request>,
}

impl Completion {
    /// The result as an [`io::Result`].
    pub fn result(&self) -> io::Result<u32> {
        result_of(self.result)
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
    pub buffer: Option<PoolBuffer>,
}

impl Taken {
    /// The result as an [`io::Result`].
    #[inline]
    pub fn result(&self) -> io::Result<u32> {
        result_of(self.result)
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
