//! Events of a core, and clients that wait for a decision.
//!
//! Owns: the translation of the engine's events. Called by: the core.

use super::handle::Handle;
use super::ids::Change;
use crate::config::Kept;
use crate::error::ConnectionError;
use crate::proto;
use crate::qlog::Qlog;
use crate::{Direction, StreamId};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// An event of a core.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client wants a connection; [accept](super::Core::accept), [refuse](super::Core::refuse),
    /// [retry](super::Core::retry) or [ignore](super::Core::ignore) it.
    Incoming(Incoming),
    /// The handshake's parameters are known
    /// ([`Connection::handshake`](super::Connection::handshake)).
    HandshakeData(Handle),
    /// The handshake is complete.
    Connected(Handle),
    /// The handshake is confirmed ([`Connection::is_confirmed`](super::Connection::is_confirmed)).
    Confirmed(Handle),
    /// The connection is closed; drive it until [`Event::Drained`].
    Lost(Handle, ConnectionError),
    /// Nothing more will be sent for the connection; [`Core::release`](super::Core::release) it.
    Drained(Handle),
    /// The peer opened streams ([`Connection::accept`](super::Connection::accept)).
    Opened(Handle, Direction),
    /// Streams may be opened again ([`Connection::open`](super::Connection::open)).
    Available(Handle, Direction),
    /// A stream has bytes, its end or a reset to read.
    Readable(Handle, StreamId),
    /// A blocked stream has room again.
    Writable(Handle, StreamId),
    /// The peer acknowledged all data of a finished stream.
    Finished(Handle, StreamId),
    /// The peer stopped a stream, with its application's code.
    Stopped(Handle, StreamId, u64),
    /// The peer ended or reset a stream; with its final size in bytes
    /// ([`Connection::watch_final_sizes`](super::Connection::watch_final_sizes)).
    FinalSize(Handle, StreamId, u64),
    /// Datagrams arrived.
    DatagramReceived(Handle),
    /// Datagrams may be sent again.
    DatagramsUnblocked(Handle),
    /// The peer may now use this connection id too (`EndpointConfig::connection_ids`).
    IdIssued(Handle, Bytes),
    /// The peer will not use this connection id any more.
    IdRetired(Handle, Bytes),
}

/// A client's first packet, which waits for a decision.
#[derive(Debug)]
pub struct Incoming {
    pub(super) inner: Box<proto::Incoming>,
    /// Length of the datagram that carried it.
    pub(super) len: usize,
    /// Connection settings and qlog as the server was configured when the packet arrived; the
    /// engine does the same for its part.
    pub(super) kept: Arc<Kept>,
    pub(super) qlog: Option<Qlog>,
}

impl Incoming {
    /// The client's address.
    pub fn remote_address(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// The local address, if known.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.inner.local_ip()
    }

    /// Whether the client's address is validated.
    pub fn is_validated(&self) -> bool {
        self.inner.remote_address_validated()
    }

    /// Whether a Retry is possible: the packet does not already answer one.
    pub fn may_retry(&self) -> bool {
        self.inner.may_retry()
    }
}

/// Translates the engine's event of a connection.
pub(super) fn from_engine(handle: Handle, event: proto::Event) -> Event {
    let stream = |id: proto::StreamId| StreamId(id.into());
    match event {
        proto::Event::HandshakeDataReady => Event::HandshakeData(handle),
        proto::Event::Connected => Event::Connected(handle),
        proto::Event::ConnectionLost { reason } => Event::Lost(handle, reason.into()),
        proto::Event::DatagramReceived => Event::DatagramReceived(handle),
        proto::Event::DatagramsUnblocked => Event::DatagramsUnblocked(handle),
        proto::Event::Stream(event) => match event {
            proto::StreamEvent::Opened { dir } => Event::Opened(handle, dir.into()),
            proto::StreamEvent::Available { dir } => Event::Available(handle, dir.into()),
            proto::StreamEvent::Readable { id } => Event::Readable(handle, stream(id)),
            proto::StreamEvent::Writable { id } => Event::Writable(handle, stream(id)),
            proto::StreamEvent::Finished { id } => Event::Finished(handle, stream(id)),
            proto::StreamEvent::Stopped { id, error_code } => {
                Event::Stopped(handle, stream(id), error_code.into_inner())
            }
        },
    }
}

impl From<proto::Dir> for Direction {
    fn from(dir: proto::Dir) -> Self {
        match dir {
            proto::Dir::Bi => Self::Bi,
            proto::Dir::Uni => Self::Uni,
        }
    }
}

impl From<Direction> for proto::Dir {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Bi => Self::Bi,
            Direction::Uni => Self::Uni,
        }
    }
}

impl Event {
    /// The connection that it belongs to.
    pub fn handle(&self) -> Option<Handle> {
        match self {
            Self::Incoming(_) => None,
            Self::HandshakeData(handle)
            | Self::Connected(handle)
            | Self::Confirmed(handle)
            | Self::Lost(handle, _)
            | Self::Drained(handle)
            | Self::Opened(handle, _)
            | Self::Available(handle, _)
            | Self::Readable(handle, _)
            | Self::Writable(handle, _)
            | Self::Finished(handle, _)
            | Self::Stopped(handle, ..)
            | Self::FinalSize(handle, ..)
            | Self::DatagramReceived(handle)
            | Self::DatagramsUnblocked(handle)
            | Self::IdIssued(handle, _)
            | Self::IdRetired(handle, _) => Some(*handle),
        }
    }
}

pub(super) fn id_changed(handle: Handle, change: Change) -> Event {
    match change {
        Change::Issued(id) => Event::IdIssued(handle, id),
        Change::Retired(id) => Event::IdRetired(handle, id),
    }
}
