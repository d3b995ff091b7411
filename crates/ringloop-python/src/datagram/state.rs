//! The state of a datagram endpoint, and of each direction.
//!
//! Owns: the types. Called by: the other files of this folder; [`ReadSide`] is changed by `read`
//! alone, [`WriteSide`] by `write`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use pyo3::prelude::*;
use ringloop::buf::SendBuf;
use ringloop::embed::sys::address::SockAddr;

use crate::ffi::{Obj, ObjCell, This};
use crate::transport::base::Base;
use crate::transport::flow::Flow;
use crate::transport::socket::{Armed, LoopSocket, Wish};

/// One endpoint.
pub struct Datagram {
    pub(super) base: Base,
    pub(super) socket: LoopSocket,
    pub(super) family: i32,
    /// The `remote_addr` it was created with, if any.
    pub(super) address: ObjCell,
    /// The socket is connected: datagrams go to its peer, whatever address is given.
    pub(super) connected: bool,
    /// This asyncio version's overhead of a queued datagram, and whether it sends empty ones.
    pub(super) rules: Rules,
    pub(super) read: ReadSide,
    pub(super) write: WriteSide,
    pub(super) flow: Flow,
    /// The last addresses in both forms: most datagrams go where the last one came from.
    pub(super) seen: RefCell<Seen>,
}

/// Purpose of an endpoint's poll; stored in the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Read,
    Write,
}

/// The receiver of the functions of this module.
pub(super) type Datagram_<'a, 'py> = This<'a, 'py, Datagram>;

/// Differences between asyncio's versions.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Overhead that a queued datagram counts in addition to its length.
    pub header_len: usize,
    /// An empty datagram is sent; otherwise `sendto(b"")` does nothing.
    pub sends_empty: bool,
}

impl Rules {
    /// Both came with 3.13 ("Changed in version 3.13" of `DatagramTransport.sendto`).
    pub fn of_this_python(py: Python<'_>) -> Self {
        let is_new = py.version_info() >= (3, 13);
        Self { header_len: if is_new { 8 } else { 0 }, sends_empty: is_new }
    }
}

/// The last source and the last destination, in both forms.
#[derive(Default)]
pub(super) struct Seen {
    pub source: Option<(SockAddr, Obj)>,
    pub destination: Option<(SockAddr, Obj)>,
}

impl Seen {
    /// The kernel's form of an object seen before. Only immutable objects are cached, so the same
    /// object means the same address. None, the source of an unnamed socket, is no destination.
    pub fn known(&self, address: Borrowed<'_, '_, PyAny>) -> Option<SockAddr> {
        if address.is_none() {
            return None;
        }
        [&self.source, &self.destination]
            .into_iter()
            .flatten()
            .find(|(_, object)| object.as_ptr() == address.as_ptr())
            .map(|(known, _)| known.clone())
    }
}

/// Whether the kernel may pass several datagrams as one message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Gro {
    /// Not a UDP socket, one of the application's, or a kernel without GRO.
    #[default]
    Never,
    /// Once flooded.
    Possible,
    On,
}

/// The state of the reading side.
#[derive(Default)]
pub(super) struct ReadSide {
    pub armed: Cell<Armed>,
    pub wish: Cell<Wish>,
    /// Received and not delivered, oldest first.
    pub held: RefCell<VecDeque<(Obj, SockAddr)>>,
    pub scheduled: Cell<bool>,
    /// Datagrams requested by the next call.
    pub batch_count: Cell<usize>,
    pub gro: Cell<Gro>,
    /// Errors in a row that left the socket readable.
    pub errors: Cell<u32>,
    /// The poll pauses after some of them; a timer ends the pause.
    pub rests: Cell<bool>,
}

impl ReadSide {
    pub fn new(may_use_gro: bool) -> Self {
        let gro = if may_use_gro { Gro::Possible } else { Gro::Never };
        Self { batch_count: Cell::new(1), gro: Cell::new(gro), ..Self::default() }
    }

    pub fn is_paused(&self) -> bool {
        self.wish.get() == Wish::Pause
    }

    /// For asyncio's repr: whether a selector would have the descriptor.
    pub fn is_polling(&self) -> bool {
        self.wish.get() == Wish::Read
    }
}

/// Destination of a datagram.
pub(super) enum Destination {
    /// The socket's peer.
    Peer,
    To(SockAddr),
    /// An address for `socket.sendto` to parse or reject.
    Foreign(Obj),
}

pub(super) struct Queued {
    pub buf: SendBuf,
    pub to: Destination,
}

/// The state of the writing side.
#[derive(Default)]
pub(super) struct WriteSide {
    pub queue: RefCell<VecDeque<Queued>>,
    /// Bytes in the queue, including the overhead per datagram.
    pub queued_bytes: Cell<usize>,
    pub armed: Cell<Armed>,
    /// The socket had no room.
    pub blocked: Cell<bool>,
    /// The turn whose first datagram was sent.
    pub last_turn: Cell<u64>,
    /// GSO works: the kernel has not rejected it.
    pub segmented: Cell<bool>,
}

impl WriteSide {
    pub fn new(is_udp: bool) -> Self {
        Self { segmented: Cell::new(is_udp), ..Self::default() }
    }

    /// Bytes waiting for room.
    pub fn size(&self) -> usize {
        if self.blocked.get() { self.queued_bytes.get() } else { 0 }
    }

    pub fn is_blocked(&self) -> bool {
        self.blocked.get()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Drops unsent datagrams.
    pub fn discard(&self) {
        let queue = self.queue.take();
        self.queued_bytes.set(0);
        self.blocked.set(false);
        drop(queue);
    }
}
