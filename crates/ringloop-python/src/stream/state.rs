//! The state of a stream: of the connection, and of each direction.
//!
//! Owns: the types. Called by: the other files of this folder; [`ReadSide`] is changed by `read`
//! alone, [`WriteSide`] by `write`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use pyo3::prelude::*;
use ringloop::embed::{Key, Kind};

use crate::ffi::{self, Obj, ObjCell, This};
use crate::limits;
use crate::transport::base::Base;
use crate::transport::flow::Flow;
use crate::transport::queue::SendQueue;
use crate::transport::reader::ReaderFunctions;
use crate::transport::socket::{Armed, LoopSocket, Wish};

/// One connection.
pub struct Stream {
    pub(super) base: Base,
    pub(super) socket: LoopSocket,
    /// The loop's driver; it never changes.
    pub(super) kind: Kind,
    /// Not a stream socket: each send is a message, and each receive takes one.
    pub(super) keeps_messages: bool,
    pub(super) server: ObjCell,
    /// Set while a file is sent outside the write queue.
    pub(super) empty_waiter: ObjCell,
    /// The loop, not user code, is calling into the connection.
    pub(super) called_by_loop: Cell<bool>,
    pub(super) read: ReadSide,
    pub(super) write: WriteSide,
    pub(super) flow: Flow,
}

/// Purpose of a stream's operation; stored in the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Received bytes, or readiness.
    Read,
    /// A send ended.
    Write,
    /// The socket is writable again.
    Writable,
}

/// The receiver of the functions of this module.
pub(super) type Stream_<'a, 'py> = This<'a, 'py, Stream>;

impl Stream {
    /// Runs the loop's work for the connection: if it ends the connection, that happens in the
    /// connection's context, as for a callback of asyncio's selector.
    #[inline]
    pub(super) fn called_by_loop<R>(&self, body: impl FnOnce() -> R) -> R {
        self.called_by_loop.set(true);
        let result = body();
        self.called_by_loop.set(false);
        result
    }
}

/// Mode of the next receive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Interactive,
    Ready,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The peer has sent EOF.
    Eof,
    /// With this errno.
    Failed(i32),
}

/// How the protocol receives bytes.
#[derive(Clone, Copy, Default)]
pub(super) enum Receiver {
    /// `data_received`.
    #[default]
    Data,
    /// `get_buffer` and `buffer_updated`.
    Buffered,
    /// One of our own protocols.
    Native(&'static NativeReceiver),
    /// The protocol of native streams.
    Reader(&'static ReaderFunctions),
}

/// The state of the reading side.
#[derive(Default)]
pub(super) struct ReadSide {
    pub mode: Cell<Mode>,
    pub armed: Cell<Armed>,
    pub wish: Cell<Wish>,
    pub receiver: Cell<Receiver>,
    /// Bytes that the protocol has not taken, oldest first, and what ended the stream after them.
    pub held: RefCell<VecDeque<Held>>,
    pub held_end: Cell<Option<End>>,
    /// `pause_reading` after the end of the stream.
    pub paused_after_end: Cell<bool>,
    pub delivery: Cell<Delivery>,
    /// The turn in which bytes were last received.
    pub received_in: Cell<u64>,
    /// Size of the next recv(2).
    pub chunk_len: Cell<usize>,
    /// Receives in a row that suggest a change of mode.
    pub streak: Cell<u8>,
}

impl ReadSide {
    pub fn new(kind: Kind, keeps_messages: bool) -> Self {
        // A message is received whole or truncated: the pool's buffers are too short.
        let (mode, chunk_len) = match kind {
            _ if keeps_messages => (Mode::Ready, limits::READ_CHUNK_MAX),
            Kind::Uring => (Mode::Interactive, limits::READ_CHUNK_MIN),
            Kind::Epoll => (Mode::Ready, limits::READ_CHUNK_MIN),
        };
        Self { mode: Cell::new(mode), chunk_len: Cell::new(chunk_len), ..Self::default() }
    }

    pub fn armed(&self) -> bool {
        self.armed.get() != Armed::Nothing
    }

    pub fn key(&self) -> Option<Key> {
        self.armed.get().key()
    }

    pub fn forget(&self) {
        self.armed.set(Armed::Nothing);
    }

    pub fn is_buffered(&self) -> bool {
        matches!(self.receiver.get(), Receiver::Buffered)
    }

    /// Whether reading has ended.
    pub fn is_over(&self) -> bool {
        self.wish.get() == Wish::Stop
    }

    /// Whether the application has paused it, before the end.
    pub fn is_held_back(&self) -> bool {
        self.wish.get() == Wish::Pause
    }

    pub fn is_paused(&self) -> bool {
        self.wish.get() == Wish::Pause || self.paused_after_end.get()
    }

    /// The error queued behind a pause.
    pub fn held_errno(&self) -> Option<i32> {
        match self.held_end.get() {
            Some(End::Failed(errno)) => Some(errno),
            Some(End::Eof) | None => None,
        }
    }

    /// For asyncio's repr: whether a selector would have the descriptor.
    pub fn is_polling(&self) -> bool {
        // A connection about to read its first bytes counts: it is not paused.
        matches!(self.wish.get(), Wish::Read | Wish::NotStarted)
    }
}

/// Whether a step to deliver held bytes is scheduled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Delivery {
    #[default]
    None,
    Scheduled,
    /// Scheduled when an exception left the loop: it runs after what is ready in the next run, like
    /// the results of asyncio's selector.
    Postponed,
}

/// One object with held bytes.
pub(super) struct Held {
    bytes: Obj,
    /// How many of them the protocol has taken.
    pub taken_len: usize,
}

impl From<Obj> for Held {
    fn from(bytes: Obj) -> Self {
        Self { bytes, taken_len: 0 }
    }
}

impl Held {
    pub fn rest<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        ffi::bytes_from(py, &self.bytes, self.taken_len)
    }

    /// The rest as one object.
    pub fn into_bytes(self, py: Python<'_>) -> PyResult<Obj> {
        if self.taken_len == 0 {
            return Ok(self.bytes);
        }
        ffi::copy_bytes(py, self.rest(py))
    }
}

/// How one of our protocols receives bytes. Both are called with the protocol's lock held
/// (`ffi::locked`).
pub(crate) struct NativeReceiver {
    /// Takes bytes. Runs no Python code, because a cell of the loop is open; the result is passed
    /// to `taken`.
    pub take: fn(&Bound<'_, PyAny>, &[u8]) -> PyResult<Option<Obj>>,
    /// Continues with what was taken, in the connection's context.
    pub taken: fn(&Bound<'_, PyAny>, Option<Obj>) -> PyResult<()>,
}

/// The engine's operation for the writing side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SendOp {
    #[default]
    Nothing,
    /// A send, with its data.
    Sending(Key),
    /// Waiting for room in the socket's buffer.
    Waiting(Key),
}

/// The state of the writing side.
#[derive(Default)]
pub(super) struct WriteSide {
    pub queue: SendQueue,
    /// Bytes of the send in flight.
    pub sending_bytes: Cell<usize>,
    pub armed: Cell<SendOp>,
    /// `write_eof` was called.
    pub eof: Cell<bool>,
    /// The result of a send in flight is ignored.
    pub discarded: Cell<bool>,
    /// A send failed, and a receive in flight is to end before the connection does.
    pub failure: Cell<Option<i32>>,
    /// A send failed with `ECONNRESET`.
    pub took_reset: Cell<bool>,
}

impl WriteSide {
    pub fn armed(&self) -> bool {
        self.armed.get() != SendOp::Nothing
    }

    pub fn key(&self) -> Option<Key> {
        match self.armed.get() {
            SendOp::Sending(key) | SendOp::Waiting(key) => Some(key),
            SendOp::Nothing => None,
        }
    }

    pub fn forget(&self) {
        self.armed.set(SendOp::Nothing);
        self.drop_unsent();
    }

    pub fn drop_unsent(&self) {
        self.queue.clear();
        self.sending_bytes.set(0);
    }

    /// Bytes in the queue and in the send in flight.
    pub fn size(&self) -> usize {
        self.queue.size() + self.sending_bytes.get()
    }

    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }
}
