//! The sessions of an endpoint's connections, their streams' queues, and admission.
//!
//! Holds no Python objects: it is used by threads without the interpreter.

use ringloop::embed::sys::fd::RawFd;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ringloop_h3::webtransport;
use ringloop_quic::config::{ClientConfig, EndpointConfig, ServerConfig};
use ringloop_quic::core::{self, Core, Handle, Written};
use ringloop_quic::error::{ConnectError, StreamError};
use ringloop_quic::session::{Closing, Phase, Sessions, Wake, index_of};
use ringloop_quic::{Bytes, Direction, StreamId};

use super::clock::Clock;
use super::event_queue::{EventQueue, Pending, Untaken};
use super::http::Driver;
use super::memory::Store;
use super::pings::Pings;
use super::queued::{Poured, Queued};
use super::socket::{Settings, Socket};
use crate::limits::{COPIED_BYTES_UNCHECKED, QUIC_EVENT_BYTES};

/// How connections report events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// They wake futures.
    Futures,
    /// They keep aioquic's events.
    Events,
}

/// Whether clients must validate their address first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Never,
    Always,
    /// While many handshakes are in progress.
    Auto,
}

/// Admission of clients.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    pub retry: Retry,
    pub connections_max: usize,
    pub is_closed: bool,
}

/// How streams opened by the peer are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerStreams {
    /// They wake accepting tasks.
    #[default]
    Accepted,
    /// By a notification of the endpoint.
    Announced,
}

/// State of a connection in addition to the session's own.
#[derive(Default)]
pub struct Attached {
    /// The application knows of it.
    pub is_announced: bool,
    pub queued: HashMap<StreamId, Queued>,
    /// Number of streams opened locally, by direction.
    pub opened: [u64; 2],
    /// Number of the peer's streams that were accepted, by direction. The engine has records of
    /// more, which must not be accessed.
    pub accepted: [u64; 2],
    pub events: EventQueue,
    pub untaken: Arc<Untaken>,
    pub peer_streams: PeerStreams,
    /// The round of notifications that contains its key.
    pub round: u64,
    pub pings: Pings,
    /// Limit of queued bytes; `None`: no limit.
    pub queued_max: Option<usize>,
    /// Streams whose empty queue is awaited, and those of them that have an empty one now.
    pub wanted: HashSet<StreamId>,
    pub writable: Vec<StreamId>,
    /// HTTP/3 is driven here if the handshake agrees on it.
    pub wants_http: bool,
    /// HTTP/3's own streams, whose bytes go before those of all others.
    pub first: Option<[StreamId; 3]>,
    /// Streams of sessions of WebTransport that have flow control, with their sessions.
    pub limited: HashMap<StreamId, StreamId>,
    /// With WebTransport.
    pub webtransport: Option<Box<webtransport::Config>>,
    pub http: Option<Box<Driver>>,
}

pub type Session = ringloop_quic::session::Session<Attached>;

impl Attached {
    fn has_accepted(&self, stream: StreamId) -> bool {
        number_of(stream) < self.accepted[index_of(stream.direction())]
    }

    /// Whether either end has opened streams.
    fn has_streams(&self) -> bool {
        self.opened != [0; 2] || self.accepted != [0; 2]
    }

    /// Whether no more may be queued.
    pub fn is_full(&self) -> bool {
        let Some(max) = self.queued_max else {
            return false;
        };
        !self.queued.is_empty() && self.queued_bytes() >= max
    }

    /// Bytes of all streams that wait for room in the send window.
    pub fn queued_bytes(&self) -> usize {
        self.queued.values().map(Queued::len).sum()
    }
}

/// Notifications for the application that drives the endpoint, by connection key.
#[derive(Debug, Default)]
pub struct Notifications {
    pub accepted: Vec<u64>,
    pub eventful: Vec<u64>,
    pub gone: Vec<u64>,
    /// Handshakes failed (`Sessions::failures`).
    pub has_failures: bool,
}

impl Notifications {
    pub fn is_empty(&self) -> bool {
        self.accepted.is_empty()
            && self.eventful.is_empty()
            && self.gone.is_empty()
            && !self.has_failures
    }
}

/// See the module docs.
pub struct State {
    pub sessions: Sessions<Attached>,
    pub style: Style,
    pub admission: Admission,
    pub clock: Clock,
    pub socket: Option<Socket>,
    pub notifications: Notifications,
    /// How often they were taken, from 1.
    round: u64,
    /// Connections with unacknowledged pings.
    pub pinging: Vec<Handle>,
    /// Memories of clients' connections that report events.
    pub memories: Vec<(Handle, Arc<Store>)>,
    /// Whether accepted connections want HTTP/3.
    pub serves_http: bool,
    /// Whether they take sessions of WebTransport.
    pub serves_webtransport: Option<webtransport::Config>,
    /// Whether any connection may want it.
    pub has_http: bool,
}

/// A stream's index among those of its initiator and direction (RFC 9000 §2.1).
pub fn number_of(stream: StreamId) -> u64 {
    stream.0 >> 2
}

impl State {
    pub fn new(
        config: &EndpointConfig,
        server: Option<ServerConfig>,
        style: Style,
        admission: Admission,
        socket: Option<Socket>,
    ) -> Self {
        let finds_mtu = socket.as_ref().is_none_or(Socket::is_unfragmented);
        Self {
            sessions: Sessions::new(Core::new(config, server, finds_mtu)),
            style,
            admission,
            clock: Clock::new(),
            socket,
            notifications: Notifications::default(),
            round: 1,
            pinging: Vec::new(),
            memories: Vec::new(),
            serves_http: false,
            serves_webtransport: None,
            has_http: false,
        }
    }

    pub fn connect(
        &mut self,
        now: Instant,
        config: &ClientConfig,
        remote: SocketAddr,
        server_name: &str,
    ) -> Result<Handle, ConnectError> {
        if self.admission.is_closed {
            return Err(ConnectError::EndpointClosed);
        }
        let is_v6 = self.socket.as_ref().map(Socket::is_v6);
        let attached = Attached { is_announced: true, ..Attached::default() };
        let remote = (remote, is_v6);
        let sessions = &mut self.sessions;
        sessions.connect(now, config, remote, server_name, attached)
    }

    /// Writes all of `bytes`; what has no room is queued, in `room` (`ffi::room_for`). Returns
    /// whether they, and all before them, found room.
    pub fn write(
        &mut self,
        handle: Handle,
        stream: StreamId,
        bytes: &[u8],
        mut room: Vec<u8>,
    ) -> Result<bool, StreamError> {
        self.pour_first(handle);
        let (mut connection, session) = self.sessions.open(handle)?;
        if !session.attached.queued.is_empty()
            && let Some(queued) = session.attached.queued.get_mut(&stream)
        {
            queued.push(bytes, room);
            return Ok(false);
        }
        if !session.attached.limited.is_empty() && session.attached.limited.contains_key(&stream) {
            let count = self.write_some(handle, stream, bytes)?;
            if count < bytes.len()
                && let Some(session) = self.sessions.get(handle)
            {
                let queued = session.attached.queued.entry(stream).or_default();
                queued.push(&bytes[count..], room);
            }
            return Ok(count == bytes.len());
        }
        if bytes.len() > COPIED_BYTES_UNCHECKED {
            // The protocol gets that memory; its own copy would be another allocation, which cannot
            // fail.
            room.extend_from_slice(bytes);
            return self.write_bytes(handle, stream, Bytes::from(room));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match connection.write(stream, rest)? {
                Written::Some(count) => rest = &rest[count..],
                Written::Blocked => {
                    let all = &mut session.attached.queued;
                    all.entry(stream).or_default().push(rest, room);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The same without a copy.
    pub fn write_bytes(
        &mut self,
        handle: Handle,
        stream: StreamId,
        bytes: Bytes,
    ) -> Result<bool, StreamError> {
        self.pour_first(handle);
        let (mut connection, session) = self.sessions.open(handle)?;
        let all = &mut session.attached.queued;
        if let Some(queued) = all.get_mut(&stream) {
            queued.push_piece(bytes);
            return Ok(false);
        }
        let mut chunks = [bytes];
        while !chunks[0].is_empty() {
            if connection.write_chunks(stream, &mut chunks)? == Written::Blocked {
                let [rest] = chunks;
                all.entry(stream).or_default().push_piece(rest);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes what there is room for; returns the number of bytes.
    pub fn write_some(
        &mut self,
        handle: Handle,
        stream: StreamId,
        bytes: &[u8],
    ) -> Result<usize, StreamError> {
        self.pour_first(handle);
        let (connection, session) = self.sessions.open(handle)?;
        if session.attached.queued.contains_key(&stream) {
            return Ok(0);
        }
        let Some(limiting) = session.attached.limited.get(&stream).copied() else {
            return write_some(connection, stream, bytes);
        };
        let granted = self.reserve(handle, limiting, bytes.len());
        let (mut connection, _) = self.sessions.open(handle)?;
        // Without a write an error would not show.
        if granted == 0
            && let Some(code) = connection.stopped(stream)?
        {
            return Err(StreamError::Stopped(code));
        }
        let written = write_some(connection, stream, &bytes[..granted]);
        let count = written.as_ref().map_or(0, |count| *count);
        self.unreserve(handle, limiting, granted - count);
        written
    }

    /// Finishes a stream after what was written; whether some of that is queued.
    pub fn finish(&mut self, handle: Handle, stream: StreamId) -> Result<bool, StreamError> {
        let style = self.style;
        let (mut connection, session) = self.sessions.open(handle)?;
        let is_queued = if let Some(queued) = session.attached.queued.get_mut(&stream) {
            queued.finish();
            true
        } else {
            connection.finish(stream)?;
            connection.finishes_later(stream)
        };
        if is_queued && style == Style::Futures {
            session.note_finish(stream);
        }
        Ok(is_queued)
    }

    pub fn reset(
        &mut self,
        handle: Handle,
        stream: StreamId,
        code: u64,
    ) -> Result<(), StreamError> {
        // As with a write, the peer learns of a stream opened locally.
        let is_open = self.open_up_to(handle, stream)?;
        let (mut connection, session) = self.sessions.open(handle)?;
        if !is_open {
            // It has its id already, and will be opened in turn.
            session.attached.queued.entry(stream).or_default().give_up(code);
            return Ok(());
        }
        session.attached.queued.remove(&stream);
        session.attached.limited.remove(&stream);
        let done = connection.reset(stream, code);
        // Nothing of it is queued any more.
        self.note_writable(handle);
        done
    }

    /// Stops the stream, and drops received data.
    pub fn stop(&mut self, handle: Handle, stream: StreamId, code: u64) -> Result<(), StreamError> {
        let (mut connection, session) = self.sessions.open(handle)?;
        let is_own = stream.is_by_client() == connection.is_client();
        if is_own || session.attached.has_accepted(stream) {
            return connection.stop(stream, code);
        }
        Err(StreamError::Closed)
    }

    /// Accepts a stream that the peer opened.
    pub fn accept(&mut self, handle: Handle, direction: Direction) -> Option<StreamId> {
        let (mut connection, session) = self.sessions.both(handle)?;
        let stream = connection.accept(direction)?;
        session.attached.accepted[index_of(direction)] = number_of(stream) + 1;
        Some(stream)
    }

    /// Opens a stream; `None` while the peer allows no more.
    pub fn open_stream(
        &mut self,
        handle: Handle,
        direction: Direction,
    ) -> Result<Option<StreamId>, StreamError> {
        let (mut connection, session) = self.sessions.open(handle)?;
        let stream = connection.open(direction);
        if stream.is_some() {
            session.attached.opened[index_of(direction)] += 1;
        }
        Ok(stream)
    }

    /// Records the awaited streams that have nothing queued any more.
    pub fn note_writable(&mut self, handle: Handle) {
        let Some(session) = self.sessions.get(handle) else {
            return;
        };
        if session.attached.wanted.is_empty() {
            return;
        }
        let (queued, writable) = (&session.attached.queued, &mut session.attached.writable);
        let count = writable.len();
        session.attached.wanted.retain(|stream| {
            let waits = queued.contains_key(stream);
            if !waits {
                writable.push(*stream);
            }
            waits
        });
        if writable.len() > count {
            self.push_event(handle, Pending::Writable);
        }
    }

    /// Opens streams up to an id chosen by the application, as aioquic does with the first write;
    /// whether it is open. If the peer does not allow it yet, an empty queue stands for it.
    pub fn open_up_to(&mut self, handle: Handle, stream: StreamId) -> Result<bool, StreamError> {
        let (mut connection, session) = self.sessions.open(handle)?;
        if stream.is_by_client() != connection.is_client() {
            let accepted = session.attached.has_accepted(stream);
            return accepted.then_some(true).ok_or(StreamError::Closed);
        }
        let direction = stream.direction();
        let opened = &mut session.attached.opened[index_of(direction)];
        while *opened <= number_of(stream) {
            if connection.open(direction).is_none() {
                session.attached.queued.entry(stream).or_default();
                return Ok(false);
            }
            *opened += 1;
        }
        Ok(true)
    }

    /// Streams may be opened again: those with data to send first.
    pub fn open_queued(&mut self, handle: Handle, direction: Direction) {
        let Some((mut connection, session)) = self.sessions.both(handle) else {
            return;
        };
        let opened = &mut session.attached.opened[index_of(direction)];
        let by_us = connection.is_client();
        let mut waiting: Vec<StreamId> = session.attached.queued.keys().copied().collect();
        waiting.retain(|stream| {
            stream.is_by_client() == by_us
                && stream.direction() == direction
                && number_of(*stream) >= *opened
        });
        waiting.sort_unstable();
        for stream in waiting {
            while *opened <= number_of(stream) {
                if connection.open(direction).is_none() {
                    return;
                }
                *opened += 1;
            }
            pour(&mut connection, &mut session.attached.queued, stream);
        }
    }

    /// Closes a connection with the application's code and reason, after what was written. At once
    /// if the handshake is not complete and nothing was written: there is nothing left to send.
    pub fn close(
        &mut self,
        now: Instant,
        handle: Handle,
        code: u64,
        reason: &[u8],
        woken: &mut Vec<Wake>,
    ) {
        let Some(session) = self.sessions.get(handle) else {
            return;
        };
        let closing = if session.phase == Phase::Complete || session.attached.has_streams() {
            Closing::Behind
        } else {
            Closing::Now
        };
        let said = (code, Bytes::copy_from_slice(reason));
        if !self.sessions.close(now, handle, said, closing) {
            return;
        }
        if let Some(session) = self.sessions.get(handle) {
            session.attached.queued.clear();
        }
        match self.style {
            Style::Futures => woken.push(Wake::All(handle)),
            Style::Events => self.push_end(handle),
        }
    }

    /// Closes everything, and refuses new clients.
    pub fn close_all(&mut self, now: Instant, code: u64, reason: &[u8], woken: &mut Vec<Wake>) {
        self.admission.is_closed = true;
        for handle in self.sessions.handles() {
            self.close(now, handle, code, reason, woken);
        }
    }

    /// Continues with another socket.
    pub fn rebind(&mut self, fd: RawFd, settings: Settings) -> std::io::Result<()> {
        let socket = Socket::new(fd, settings)?;
        let last = self.socket.as_ref().and_then(Socket::local_addr);
        if let (Some(from), Some(to)) = (last, socket.local_addr()) {
            self.sessions.check_move(from, to)?;
        }
        self.socket = Some(socket);
        self.sessions.moved();
        Ok(())
    }

    /// The connection has ended. Data of paused streams comes before that event.
    pub fn push_end(&mut self, handle: Handle) {
        let streams = self.sessions.get(handle).map(|session| session.attached.events.resume_all());
        for stream in streams.unwrap_or_default() {
            self.push_event(handle, Pending::Readable(stream));
        }
        self.push_event(handle, Pending::Terminated);
    }

    pub fn push_event(&mut self, handle: Handle, event: Pending) {
        let Some(session) = self.sessions.get(handle) else {
            return;
        };
        session.attached.events.push(event);
        // Even if an earlier event was announced: the application may have failed before it took
        // that one.
        if !session.attached.events.is_empty() {
            self.notify_eventful(handle);
        }
    }

    /// There is something to do for a connection. Queued once until notifications are taken, which
    /// an application without our loop may never do.
    pub fn notify_eventful(&mut self, handle: Handle) {
        let round = self.round;
        if let Some(session) = self.sessions.get(handle)
            && std::mem::replace(&mut session.attached.round, round) != round
        {
            self.notifications.eventful.push(handle.to_bits());
        }
    }

    pub fn take_notifications(&mut self) -> Notifications {
        self.round += 1;
        std::mem::take(&mut self.notifications)
    }

    /// Passes on queued data of HTTP/3's own streams. A field section may refer to instructions on
    /// them: if bodies used up the peer's credit first, it would wait for ever (RFC 9204 §2.1.3).
    fn pour_first(&mut self, handle: Handle) {
        let Some((mut connection, session)) = self.sessions.both(handle) else {
            return;
        };
        let attached = &mut session.attached;
        let Some(first) = attached.first.filter(|_| !attached.queued.is_empty()) else {
            return;
        };
        let opened = attached.opened[index_of(Direction::Uni)];
        for stream in first.into_iter().filter(|stream| number_of(*stream) < opened) {
            pour(&mut connection, &mut attached.queued, stream);
        }
    }

    /// The stream is writable again; whether nothing of it is queued now.
    pub fn pour(&mut self, handle: Handle, stream: StreamId) -> bool {
        self.pour_first(handle);
        let Some((mut connection, session)) = self.sessions.both(handle) else {
            return false;
        };
        match session.attached.limited.get(&stream).copied() {
            None => pour(&mut connection, &mut session.attached.queued, stream),
            Some(limiting) => self.pour_limited(handle, stream, limiting),
        }
    }
}

/// Writes what there is room for; returns the number of bytes.
fn write_some(
    mut connection: core::Connection<'_>,
    stream: StreamId,
    bytes: &[u8],
) -> Result<usize, StreamError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let piece = &rest[..rest.len().min(QUIC_EVENT_BYTES)];
        match connection.write(stream, piece)? {
            Written::Some(count) => rest = &rest[count..],
            Written::Blocked => break,
        }
    }
    Ok(bytes.len() - rest.len())
}

/// Moves queued bytes of a stream into the protocol; whether nothing is left.
fn pour(
    connection: &mut core::Connection<'_>,
    all: &mut HashMap<StreamId, Queued>,
    stream: StreamId,
) -> bool {
    let Some(queued) = all.get_mut(&stream) else {
        return true;
    };
    if queued.pour(connection, stream) == Poured::Some {
        return false;
    }
    all.remove(&stream);
    true
}
