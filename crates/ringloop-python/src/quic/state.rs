//! The sessions of an endpoint's connections, what is queued for their streams, and the rules of who is let in.
//!
//! Holds no object of Python's: it is used by threads that do without the interpreter.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use ringloop_quic::config::{ClientConfig, EndpointConfig, ServerConfig};
use ringloop_quic::core::{self, Core, Handle, Read, Written};
use ringloop_quic::error::{ConnectError, ConnectionError, StreamError};
use ringloop_quic::session::{Closing, Phase, Sessions, Wake, index_of};
use ringloop_quic::{Bytes, Direction, StreamId};

use super::clock::Clock;
use super::event_queue::{EventQueue, Pending, Untaken};
use super::memory::Store;
use super::pings::Pings;
use super::queued::{Poured, Queued};
use super::socket::{Settings, Socket};
use crate::limits::{COPIED_BYTES_UNCHECKED, QUIC_EVENT_BYTES};

/// How connections tell what has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// They wake futures.
    Futures,
    /// They keep aioquic's events.
    Events,
}

/// Whether clients have to prove their address first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    Never,
    Always,
    /// While many handshakes are under way.
    Auto,
}

/// Who is let in.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    pub retry: Retry,
    pub connections_max: usize,
    pub is_closed: bool,
}

/// How streams that the peer opens are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeerStreams {
    /// They wake those who accept streams.
    #[default]
    Accepted,
    /// By a notification of the endpoint.
    Announced,
}

/// What is kept of a connection beside the session's own state.
#[derive(Default)]
pub struct Attached {
    /// The program knows of it.
    pub is_announced: bool,
    pub queued: HashMap<StreamId, Queued>,
    /// Streams opened here, by direction: the numbers that are taken.
    pub opened: [u64; 2],
    /// The peer's streams that were accepted, by direction. The protocol has records of more, which must not be
    /// touched.
    pub accepted: [u64; 2],
    pub events: EventQueue,
    pub untaken: Arc<Untaken>,
    pub peer_streams: PeerStreams,
    /// The round of notifications in which its key stands.
    pub round: u64,
    pub pings: Pings,
    /// Bytes that may be queued; `None`: any number.
    pub queued_max: Option<usize>,
    /// Streams whose queue somebody waits for, and those of them that have none any more.
    pub wanted: HashSet<StreamId>,
    pub writable: Vec<StreamId>,
}

pub type Session = ringloop_quic::session::Session<Attached>;

impl Attached {
    fn has_accepted(&self, stream: StreamId) -> bool {
        number_of(stream) < self.accepted[index_of(stream.direction())]
    }

    /// Whether streams were opened, by whichever end.
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

/// What the program that drives the endpoint is notified of, by connections' keys.
#[derive(Debug, Default)]
pub struct Notifications {
    pub accepted: Vec<u64>,
    pub eventful: Vec<u64>,
    pub gone: Vec<u64>,
    /// Handshakes have failed (`Sessions::failures`).
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

/// See the module's text.
pub struct State {
    pub sessions: Sessions<Attached>,
    pub style: Style,
    pub admission: Admission,
    pub clock: Clock,
    pub socket: Option<Socket>,
    pub notifications: Notifications,
    /// How often they were taken, from 1.
    round: u64,
    /// Connections with pings that wait.
    pub pinging: Vec<Handle>,
    /// Where clients' connections keep what a server gives, of those that tell events.
    pub memories: Vec<(Handle, Arc<Store>)>,
}

/// The number of a stream among those of its side and direction (RFC 9000 §2.1).
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
        let attached = Attached {
            is_announced: true,
            ..Attached::default()
        };
        let remote = (remote, is_v6);
        let sessions = &mut self.sessions;
        sessions.connect(now, config, remote, server_name, attached)
    }

    /// Write all of `bytes`; what has no room waits here, in `room` (`ffi::room_for`). Tells whether they, and all before
    /// them, have found room.
    pub fn write(
        &mut self,
        handle: Handle,
        stream: StreamId,
        bytes: &[u8],
        mut room: Vec<u8>,
    ) -> Result<bool, StreamError> {
        let (mut connection, session) = self.sessions.open(handle)?;
        if !session.attached.queued.is_empty()
            && let Some(queued) = session.attached.queued.get_mut(&stream)
        {
            queued.push(bytes, room);
            return Ok(false);
        }
        if bytes.len() > COPIED_BYTES_UNCHECKED {
            // The protocol gets that memory; a copy of its own would be one more, which cannot fail.
            room.extend_from_slice(bytes);
            let mut chunks = [Bytes::from(room)];
            while !chunks[0].is_empty() {
                if connection.write_chunks(stream, &mut chunks)? == Written::Blocked {
                    let [rest] = chunks;
                    session
                        .attached
                        .queued
                        .entry(stream)
                        .or_default()
                        .push_piece(rest);
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match connection.write(stream, rest)? {
                Written::Some(count) => rest = &rest[count..],
                Written::Blocked => {
                    session
                        .attached
                        .queued
                        .entry(stream)
                        .or_default()
                        .push(rest, room);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Write what there is room for; tells how many bytes that are.
    pub fn write_some(
        &mut self,
        handle: Handle,
        stream: StreamId,
        bytes: &[u8],
    ) -> Result<usize, StreamError> {
        let (mut connection, session) = self.sessions.open(handle)?;
        if session.attached.queued.contains_key(&stream) {
            return Ok(0);
        }
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

    /// Finish a stream behind what was written; tells whether something of that is queued.
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
        // As with a write, the peer hears of a stream of this end.
        let is_open = self.open_up_to(handle, stream)?;
        let (mut connection, session) = self.sessions.open(handle)?;
        if !is_open {
            // It has its number already, and its turn comes.
            session
                .attached
                .queued
                .entry(stream)
                .or_default()
                .give_up(code);
            return Ok(());
        }
        session.attached.queued.remove(&stream);
        let done = connection.reset(stream, code);
        // Nothing of it waits for room any more.
        self.note_writable(handle);
        done
    }

    /// Have the peer stop sending, and drop what has come.
    pub fn stop(&mut self, handle: Handle, stream: StreamId, code: u64) -> Result<(), StreamError> {
        let (mut connection, session) = self.sessions.open(handle)?;
        let is_own = stream.is_by_client() == connection.is_client();
        if is_own || session.attached.has_accepted(stream) {
            return connection.stop(stream, code);
        }
        Err(StreamError::Closed)
    }

    /// Take a stream that the peer has opened.
    pub fn accept(&mut self, handle: Handle, direction: Direction) -> Option<StreamId> {
        let (mut connection, session) = self.sessions.both(handle)?;
        let stream = connection.accept(direction)?;
        session.attached.accepted[index_of(direction)] = number_of(stream) + 1;
        Some(stream)
    }

    /// Open a stream; `None` while the peer allows no more.
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

    /// Note the streams that somebody waits for and that have nothing queued any more.
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

    /// Open streams up to a number that the program has chosen, as aioquic does with the first write; tells
    /// whether it is open. Where the peer does not allow it yet, an empty queue stands for it.
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

    /// Streams may be opened again: those first that have something to send.
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

    /// Read at most `bytes_max` of a stream.
    pub fn read(
        &mut self,
        handle: Handle,
        stream: StreamId,
        bytes_max: usize,
        pieces: &mut Vec<Bytes>,
    ) -> Result<Read, StreamError> {
        let Some((mut connection, session)) = self.sessions.both(handle) else {
            return Err(ConnectionError::Closed.into());
        };
        let read = connection.read(stream, bytes_max, |piece| {
            pieces.push(piece);
            true
        });
        match (&read, session.error()) {
            // What had come before the end may be read.
            (Ok(Read::Blocked) | Err(StreamError::Closed), Some(error)) => {
                Err(error.clone().into())
            }
            _ => read,
        }
    }

    /// Close a connection with the program's code and reason, behind what was written. Before the handshake is complete,
    /// and nothing was, at once: what it has to say is not to be said any more.
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

    /// Close everything, and refuse new ones.
    pub fn close_all(&mut self, now: Instant, code: u64, reason: &[u8], woken: &mut Vec<Wake>) {
        self.admission.is_closed = true;
        for handle in self.sessions.handles() {
            self.close(now, handle, code, reason, woken);
        }
    }

    /// Go on with another socket.
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

    /// The connection is over. What streams that are paused have to tell comes before.
    pub fn push_end(&mut self, handle: Handle) {
        let streams = self
            .sessions
            .get(handle)
            .map(|session| session.attached.events.resume_all());
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
        // Also where what it adds to was told of before: its program may have failed before it took that one.
        if !session.attached.events.is_empty() {
            self.notify_eventful(handle);
        }
    }

    /// There is something to do for a connection. Once is enough until notifications are taken: a program without a loop
    /// of ours may never do that.
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

    /// The stream takes bytes again; tells whether nothing of it is queued now.
    pub fn pour(&mut self, handle: Handle, stream: StreamId) -> bool {
        let both = self.sessions.both(handle);
        both.is_some_and(|(mut connection, session)| {
            pour(&mut connection, &mut session.attached.queued, stream)
        })
    }
}

/// Pour what is queued for a stream; tells whether nothing is left.
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
