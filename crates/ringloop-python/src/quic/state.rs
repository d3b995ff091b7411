//! The protocol's core, with a record for each connection and the rules of who is let in.
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
use ringloop_quic::{Bytes, Direction, StreamId};

use super::address;
use super::clock::Clock;
use super::memory::Store;
use super::notes::{Note, Notes};
use super::pings::Pings;
use super::queued::{Poured, Queued};
use super::shared::{Record, Unfinished};
use super::socket::{Settings, Socket};
use super::waiters::{Wait, Wake};
use crate::limits::{COPIED_BYTES_UNCHECKED, QUIC_EVENT_BYTES, QUIC_FAILURES_MAX};

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

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Begun,
    /// What the handshake agrees on is known.
    Agreed,
    Complete,
}

/// Who hears of streams that the peer opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerStreams {
    /// Whoever waits to accept one.
    Accepted,
    /// The endpoint's program, as news.
    Announced,
}

/// A connection's record.
pub struct Link {
    pub handle: Handle,
    pub record: Arc<Record>,
    pub phase: Phase,
    /// The program knows of it.
    pub is_told: bool,
    /// The server refused early data: the streams that were opened for it are not there.
    pub early_rejected: bool,
    pub queued: HashMap<StreamId, Queued>,
    /// Those that the peer has stopped, with its code, while they were to be finished behind what was queued: the protocol
    /// forgets it before the program asks. They stay for as long as the program has the stream.
    pub stopped: HashMap<StreamId, u64>,
    /// Streams opened here, by direction: the numbers that are taken.
    pub opened: [u64; 2],
    /// The peer's streams that were accepted, by direction. The protocol has records of more, which must not be
    /// touched.
    pub accepted: [u64; 2],
    pub notes: Notes,
    pub peer_streams: PeerStreams,
    /// The round of news in which its key stands.
    news_round: u64,
    pub pings: Pings,
    /// Bytes that may be queued; `None`: any number.
    pub queued_max: Option<usize>,
    /// Streams whose queue somebody waits for, and those of them that have none any more.
    pub wanted: HashSet<StreamId>,
    pub writable: Vec<StreamId>,
}

impl Link {
    fn has_accepted(&self, stream: StreamId) -> bool {
        index_of(stream) < self.accepted[at(stream.direction())]
    }

    /// Whether streams were opened, by whichever end.
    fn has_streams(&self) -> bool {
        self.opened != [0; 2] || self.accepted != [0; 2]
    }

    /// Remember where the handshake was, before its end is known.
    pub fn note_unfinished(&self, connection: &core::Connection<'_>) {
        drop(self.record.unfinished.set(Unfinished {
            address: connection.remote_address(),
            has_answered: connection.stats().udp_received > 0,
        }));
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

/// What the program that drives the endpoint has to be told, by connections' keys.
#[derive(Debug, Default)]
pub struct News {
    pub accepted: Vec<u64>,
    pub eventful: Vec<u64>,
    pub gone: Vec<u64>,
    /// Handshakes have failed (`State::failures`).
    pub has_failures: bool,
}

impl News {
    pub fn is_empty(&self) -> bool {
        self.accepted.is_empty()
            && self.eventful.is_empty()
            && self.gone.is_empty()
            && !self.has_failures
    }
}

/// See the module's text.
pub struct State {
    pub core: Core,
    pub style: Style,
    pub admission: Admission,
    pub clock: Clock,
    pub socket: Option<Socket>,
    pub links: Vec<Option<Box<Link>>>,
    pub news: News,
    /// How often the news were taken, from 1.
    news_round: u64,
    pub handshake_count: usize,
    /// Clients whose handshake failed, of which nobody was told yet.
    pub failures: Vec<(SocketAddr, Arc<Record>)>,
    /// Connections with pings that wait.
    pub pinging: Vec<Handle>,
    /// Where clients' connections keep what a server gives, of those that tell events.
    pub memories: Vec<(Handle, Arc<Store>)>,
}

pub fn at(direction: Direction) -> usize {
    match direction {
        Direction::Bi => 0,
        Direction::Uni => 1,
    }
}

/// The number of a stream among those of its side and direction (RFC 9000 §2.1).
pub fn index_of(stream: StreamId) -> u64 {
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
            core: Core::new(config, server, finds_mtu),
            style,
            admission,
            clock: Clock::new(),
            socket,
            links: Vec::new(),
            news: News::default(),
            news_round: 1,
            handshake_count: 0,
            failures: Vec::new(),
            pinging: Vec::new(),
            memories: Vec::new(),
        }
    }

    pub fn insert(&mut self, handle: Handle, is_told: bool) -> &mut Link {
        let at = handle.index();
        if self.links.len() <= at {
            self.links.resize_with(at + 1, || None);
        }
        self.handshake_count += 1;
        self.links[at].insert(Box::new(Link {
            handle,
            record: Arc::default(),
            phase: Phase::Begun,
            is_told,
            early_rejected: false,
            queued: HashMap::new(),
            stopped: HashMap::new(),
            opened: [0; 2],
            accepted: [0; 2],
            notes: Notes::default(),
            peer_streams: PeerStreams::Accepted,
            news_round: 0,
            pings: Pings::default(),
            queued_max: None,
            wanted: HashSet::new(),
            writable: Vec::new(),
        }))
    }

    pub fn link(&mut self, handle: Handle) -> Option<&mut Link> {
        let link = self.links.get_mut(handle.index())?.as_deref_mut()?;
        (link.handle == handle).then_some(link)
    }

    /// A connection of the core's with its record.
    pub fn both(&mut self, handle: Handle) -> Option<(core::Connection<'_>, &mut Link)> {
        let link = self.links.get_mut(handle.index())?.as_deref_mut()?;
        let connection = self.core.connection(handle)?;
        (link.handle == handle).then_some((connection, link))
    }

    /// The same, unless the connection is over.
    pub fn open_both(
        &mut self,
        handle: Handle,
    ) -> Result<(core::Connection<'_>, &mut Link), StreamError> {
        match self.both(handle) {
            Some((connection, link)) => match link.record.lost.get() {
                None => Ok((connection, link)),
                Some(error) => Err(error.clone().into()),
            },
            None => Err(ConnectionError::Closed.into()),
        }
    }

    /// The connections that are not over.
    pub fn handles(&self) -> Vec<Handle> {
        let links = self.links.iter().flatten();
        let open = links.filter(|link| link.record.lost.get().is_none());
        open.map(|link| link.handle).collect()
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
        let remote = match &self.socket {
            Some(socket) if socket.is_v6() => address::mapped(remote),
            Some(_) if remote.is_ipv6() => return Err(ConnectError::InvalidAddress(remote)),
            _ => remote,
        };
        let handle = self.core.connect(now, config, remote, server_name)?;
        self.insert(handle, true);
        Ok(handle)
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
        let (mut connection, link) = self.open_both(handle)?;
        if !link.queued.is_empty()
            && let Some(queued) = link.queued.get_mut(&stream)
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
                    link.queued.entry(stream).or_default().push_piece(rest);
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
                    link.queued.entry(stream).or_default().push(rest, room);
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
        let (mut connection, link) = self.open_both(handle)?;
        if link.queued.contains_key(&stream) {
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
        let (mut connection, link) = self.open_both(handle)?;
        match link.queued.get_mut(&stream) {
            Some(queued) => {
                queued.finish();
                Ok(true)
            }
            None => connection.finish(stream).map(|()| false),
        }
    }

    /// The program has let go of a stream that it had finished behind what was queued.
    pub fn forget_end(&mut self, handle: Handle, stream: StreamId) {
        if let Some(link) = self.link(handle) {
            link.stopped.remove(&stream);
            if let Some(queued) = link.queued.get_mut(&stream) {
                queued.orphan();
            }
        }
    }

    pub fn reset(
        &mut self,
        handle: Handle,
        stream: StreamId,
        code: u64,
    ) -> Result<(), StreamError> {
        // As with a write, the peer hears of a stream of this end.
        let is_open = self.open_up_to(handle, stream)?;
        let (mut connection, link) = self.open_both(handle)?;
        if !is_open {
            // It has its number already, and its turn comes.
            link.queued.entry(stream).or_default().give_up(code);
            return Ok(());
        }
        link.queued.remove(&stream);
        let done = connection.reset(stream, code);
        // Nothing of it waits for room any more.
        self.note_writable(handle);
        done
    }

    /// Have the peer stop sending, and drop what has come.
    pub fn stop(&mut self, handle: Handle, stream: StreamId, code: u64) -> Result<(), StreamError> {
        let (mut connection, link) = self.open_both(handle)?;
        let is_own = stream.is_by_client() == connection.is_client();
        if is_own || link.has_accepted(stream) {
            return connection.stop(stream, code);
        }
        Err(StreamError::Closed)
    }

    /// Take a stream that the peer has opened.
    pub fn accept(&mut self, handle: Handle, direction: Direction) -> Option<StreamId> {
        let (mut connection, link) = self.both(handle)?;
        let stream = connection.accept(direction)?;
        link.accepted[at(direction)] = index_of(stream) + 1;
        Some(stream)
    }

    /// Open a stream; `None` while the peer allows no more.
    pub fn open(
        &mut self,
        handle: Handle,
        direction: Direction,
    ) -> Result<Option<StreamId>, StreamError> {
        let (mut connection, link) = self.open_both(handle)?;
        let stream = connection.open(direction);
        if stream.is_some() {
            link.opened[at(direction)] += 1;
        }
        Ok(stream)
    }

    /// Note the streams that somebody waits for and that have nothing queued any more.
    pub fn note_writable(&mut self, handle: Handle) {
        let Some(link) = self.link(handle) else {
            return;
        };
        if link.wanted.is_empty() {
            return;
        }
        let (queued, writable) = (&link.queued, &mut link.writable);
        let count = writable.len();
        link.wanted.retain(|stream| {
            let waits = queued.contains_key(stream);
            if !waits {
                writable.push(*stream);
            }
            waits
        });
        if writable.len() > count {
            self.note(handle, Note::Writable);
        }
    }

    /// Open streams up to a number that the program has chosen, as aioquic does with the first write; tells
    /// whether it is open. Where the peer does not allow it yet, an empty queue stands for it.
    pub fn open_up_to(&mut self, handle: Handle, stream: StreamId) -> Result<bool, StreamError> {
        let (mut connection, link) = self.open_both(handle)?;
        if stream.is_by_client() != connection.is_client() {
            let accepted = link.has_accepted(stream);
            return accepted.then_some(true).ok_or(StreamError::Closed);
        }
        let direction = stream.direction();
        let opened = &mut link.opened[at(direction)];
        while *opened <= index_of(stream) {
            if connection.open(direction).is_none() {
                link.queued.entry(stream).or_default();
                return Ok(false);
            }
            *opened += 1;
        }
        Ok(true)
    }

    /// Streams may be opened again: those first that have something to send.
    pub fn open_queued(&mut self, handle: Handle, direction: Direction) {
        let Some((mut connection, link)) = self.both(handle) else {
            return;
        };
        let opened = &mut link.opened[at(direction)];
        let by_us = connection.is_client();
        let mut waiting: Vec<StreamId> = link.queued.keys().copied().collect();
        waiting.retain(|stream| {
            stream.is_by_client() == by_us
                && stream.direction() == direction
                && index_of(*stream) >= *opened
        });
        waiting.sort_unstable();
        for stream in waiting {
            while *opened <= index_of(stream) {
                if connection.open(direction).is_none() {
                    return;
                }
                *opened += 1;
            }
            pour(&mut connection, &mut link.queued, stream);
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
        let Some((mut connection, link)) = self.both(handle) else {
            return Err(ConnectionError::Closed.into());
        };
        let read = connection.read(stream, bytes_max, |piece| {
            pieces.push(piece);
            true
        });
        match (&read, link.record.lost.get()) {
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
        let style = self.style;
        let Some((mut connection, link)) = self.both(handle) else {
            return;
        };
        if link.record.lost.get().is_some() {
            return;
        }
        if link.phase != Phase::Complete {
            link.note_unfinished(&connection);
        }
        drop(link.record.lost.set(ConnectionError::Closed));
        let words = String::from_utf8_lossy(reason).into_owned();
        drop(link.record.said.set((code, words)));
        let reason = Bytes::copy_from_slice(reason);
        if link.phase == Phase::Complete || link.has_streams() {
            connection.close_behind(now, code, reason);
        } else {
            connection.close(now, code, reason);
        }
        link.queued.clear();
        if link.phase != Phase::Complete {
            link.phase = Phase::Complete;
            self.handshake_count -= 1;
        }
        match style {
            Style::Futures => woken.push(Wake::All(handle.to_bits())),
            Style::Events => self.note_end(handle),
        }
    }

    /// Close everything, and refuse new ones.
    pub fn close_all(&mut self, now: Instant, code: u64, reason: &[u8], woken: &mut Vec<Wake>) {
        self.admission.is_closed = true;
        for handle in self.handles() {
            self.close(now, handle, code, reason, woken);
        }
    }

    /// Go on with another socket.
    pub fn rebind(&mut self, fd: RawFd, settings: Settings) -> std::io::Result<()> {
        let socket = Socket::new(fd, settings)?;
        let last = self.socket.as_ref().and_then(Socket::local_addr);
        if let (Some(from), Some(to)) = (last, socket.local_addr()) {
            self.core.check_move(from, to)?;
        }
        self.socket = Some(socket);
        for handle in self.handles() {
            if let Some(mut connection) = self.core.connection(handle)
                && connection.is_client()
            {
                // One that is closed has nothing to move.
                let _ = connection.local_address_changed();
            }
        }
        Ok(())
    }

    /// The connection is over. What streams that are paused have to tell comes before.
    pub fn note_end(&mut self, handle: Handle) {
        let streams = self.link(handle).map(|link| link.notes.resume_all());
        for stream in streams.unwrap_or_default() {
            self.note(handle, Note::Readable(stream));
        }
        self.note(handle, Note::Terminated);
    }

    pub fn note(&mut self, handle: Handle, note: Note) {
        let Some(link) = self.link(handle) else {
            return;
        };
        link.notes.push(note);
        // Also where what it adds to was told of before: whoever was told may have failed before it took it.
        if !link.notes.is_empty() {
            self.tell_eventful(handle);
        }
    }

    /// There is something to do for a connection. Once is enough until the news are taken: a program without a loop
    /// of ours may never do that.
    pub fn tell_eventful(&mut self, handle: Handle) {
        let round = self.news_round;
        if let Some(link) = self.link(handle)
            && std::mem::replace(&mut link.news_round, round) != round
        {
            self.news.eventful.push(handle.to_bits());
        }
    }

    /// A client's handshake has failed. With a socket there is a loop that asks every turn, and no more fail in one than there
    /// are connections. Without, those that are told of are bounded; all are counted.
    pub fn note_failure(&mut self, address: SocketAddr, record: Arc<Record>) {
        if self.socket.is_some() || self.failures.len() < QUIC_FAILURES_MAX {
            self.failures.push((address, record));
        }
        self.news.has_failures = true;
    }

    pub fn take_news(&mut self) -> News {
        self.news_round += 1;
        std::mem::take(&mut self.news)
    }

    /// The stream takes bytes again; tells who waited for it.
    pub fn writable(&mut self, handle: Handle, stream: StreamId) -> Option<Wait> {
        let (mut connection, link) = self.both(handle)?;
        pour(&mut connection, &mut link.queued, stream).then_some(Wait::Write(stream))
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
