//! The state of a connection's HTTP/3, and the handling of its events. Does not access QUIC: `transfer` does.

use std::collections::{HashSet, VecDeque};
use std::mem;

use ringloop_h3::{
    Code, Config, Connection, ConnectionError, Event, LocalStreams, Priority, Role, Settings,
    StreamId as HttpStreamId, StreamMap,
};
use ringloop_quic::core::Handle;
use ringloop_quic::session::{Wait, Wake};
use ringloop_quic::{Bytes, Direction, StreamId};

use super::received::{Ending, Received, Section, SharedReceived, lock};
use super::webtransport::WebTransport;
use crate::limits::H3_READ_BYTES;

/// The ALPN protocol that selects it (RFC 9114 §3.1).
pub const ALPN: &[u8] = b"h3";

/// See the module docs.
#[derive(Debug)]
pub struct Driver {
    pub(super) handle: Handle,
    pub(super) role: Role,
    /// The control stream and the QPACK streams.
    pub(super) own: [StreamId; 3],
    pub connection: Connection,
    pub(super) exchanges: StreamMap<StreamId, SharedReceived>,
    /// Requests whose head has arrived, not taken by the application.
    ready: VecDeque<StreamId>,
    /// The peer's unidirectional streams that HTTP/3 reads.
    pub(super) unidirectional: HashSet<StreamId>,
    /// Streams to read again.
    pub(super) unblocked: Vec<StreamId>,
    /// Pieces of one read that HTTP/3 has not consumed.
    pub(super) pieces: VecDeque<Bytes>,
    /// The stream ends after them.
    pub(super) is_at_end: bool,
    pub(super) webtransport: Option<Box<WebTransport>>,
    /// With flow control of sessions: final sizes of streams whose session is not known.
    pub(super) final_sizes: StreamMap<StreamId, u64>,
    /// Sessions whose limit on sent bytes was raised.
    pub(super) unlimited: Vec<StreamId>,
    /// The peer's GOAWAY.
    pub go_away: Option<u64>,
    /// There are new ready requests.
    pub(super) is_eventful: bool,
    /// Requests whose priority has not been passed to QUIC.
    pub(super) prioritised: Vec<StreamId>,
}

pub(super) fn in_http(stream: StreamId) -> HttpStreamId {
    HttpStreamId(stream.0)
}

pub(super) fn in_quic(stream: HttpStreamId) -> StreamId {
    StreamId(stream.0)
}

impl Driver {
    /// For a connection that has opened `opened` unidirectional streams: the next three are ours.
    /// `datagrams`: QUIC supports them; WebTransport requires them.
    pub fn new(
        handle: Handle,
        role: Role,
        opened: u64,
        datagrams: bool,
        webtransport: Option<&ringloop_h3::webtransport::Config>,
    ) -> Self {
        let by_server = u64::from(role == Role::Server);
        let [control, encoder, decoder] =
            [0, 1, 2].map(|number| HttpStreamId((opened + number) << 2 | 2 | by_server));
        let local = LocalStreams { control, encoder, decoder };
        let own = [control, encoder, decoder].map(in_quic);
        let default = Config::default();
        let mut config = Config {
            settings: Settings {
                extended_connect: role == Role::Server,
                datagrams,
                ..default.settings
            },
            raw_fields: true,
            ..default
        };
        let webtransport = webtransport.filter(|_| datagrams).map(|wanted| {
            wanted.enable(role, &mut config);
            Box::new(WebTransport::new(role, wanted.clone()))
        });
        Self {
            handle,
            role,
            own,
            connection: Connection::new(role, config, local),
            exchanges: StreamMap::default(),
            ready: VecDeque::new(),
            unidirectional: HashSet::new(),
            unblocked: Vec::new(),
            pieces: VecDeque::new(),
            is_at_end: false,
            webtransport,
            final_sizes: StreamMap::default(),
            unlimited: Vec::new(),
            go_away: None,
            is_eventful: false,
            prioritised: Vec::new(),
        }
    }

    /// Whether this end sends the requests.
    pub fn is_client(&self) -> bool {
        self.role == Role::Client
    }

    /// Whether a stream is HTTP/3's.
    pub(super) fn reads(&self, stream: StreamId) -> bool {
        match stream.direction() {
            Direction::Bi => {
                let hosted = self.webtransport.as_ref();
                self.exchanges.contains_key(&stream)
                    || hosted.is_some_and(|hosted| hosted.is_session(stream))
            }
            Direction::Uni => self.unidirectional.contains(&stream),
        }
    }

    /// Bytes that may be read from a stream now.
    pub(super) fn room(&self, stream: StreamId) -> usize {
        if self.connection.is_blocked(in_http(stream)) {
            return 0;
        }
        if stream.direction() == Direction::Uni && self.webtransport.is_some() {
            // The rest of a session's stream, and its end, stay in QUIC until the application reads them:
            // streams that it does not accept keep the peer from opening others.
            let missing = self.connection.header_bytes_missing(in_http(stream));
            return missing.unwrap_or(H3_READ_BYTES);
        }
        let received = self.exchanges.get(&stream);
        let room = received.map_or(usize::MAX, |received| lock(received).room());
        room.min(H3_READ_BYTES)
    }

    /// Passes the pieces of a read to HTTP/3.
    pub(super) fn receive(
        &mut self,
        stream: StreamId,
        is_end: bool,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        self.is_at_end = is_end;
        if is_end && self.pieces.is_empty() {
            self.pieces.push_back(Bytes::new());
        }
        while let Some(piece) = self.pieces.pop_front() {
            let is_last = is_end && self.pieces.is_empty();
            let taken = self.connection.receive(in_http(stream), piece, is_last);
            let handled = self.take_events(woken);
            if taken.is_err() || handled.is_err() {
                self.pieces.clear();
                return taken.and(handled);
            }
            if !self.connection.is_reading(in_http(stream)) {
                // Refused, ended, or a session's: further data would be taken for a new stream.
                self.unidirectional.remove(&stream);
                self.pieces.clear();
            }
        }
        Ok(())
    }

    // --- events of HTTP/3 -----------------------------------------------------------------------

    pub(super) fn take_events(&mut self, woken: &mut Vec<Wake>) -> Result<(), ConnectionError> {
        while let Some(event) = self.connection.poll_event() {
            if let Some(event) = self.offer(event)? {
                self.take_event(event, woken);
            }
        }
        self.take_session_events(woken);
        Ok(())
    }

    fn take_event(&mut self, event: Event, woken: &mut Vec<Wake>) {
        match event {
            Event::Fields { stream, fields } => {
                let is_head =
                    self.update(stream, woken, |received| received.add_section(Section(fields)));
                if is_head == Some(true) && self.role == Role::Server {
                    self.make_ready(in_quic(stream));
                    if self.connection.priority(stream) != Some(Priority::default()) {
                        self.prioritised.push(in_quic(stream));
                    }
                }
            }
            Event::Data { stream, data } => {
                self.update(stream, woken, |received| received.add_data(data));
            }
            Event::End { stream } => {
                self.update(stream, woken, |received| received.end(Ending::Complete));
            }
            Event::Reset { stream, code } => {
                self.update(stream, woken, |received| {
                    received.end(Ending::Reset(code.0));
                });
                if self.forget_ready(in_quic(stream)) {
                    // No handler will respond to it.
                    let _ended = self.connection.cancel(stream, Code::H3_REQUEST_CANCELLED);
                }
            }
            Event::Failed { stream, code, reason } => {
                self.update(stream, woken, |received| {
                    received.stopped.get_or_insert(code.0);
                    received.end(Ending::Failed(code.0, reason));
                });
                let ours = in_quic(stream);
                let waits = [Wait::Write(ours), Wait::Finished(ours)];
                woken.extend(waits.map(|wait| Wake::For(self.handle, wait)));
                self.forget_ready(in_quic(stream));
            }
            Event::Stopped { stream, code } => {
                self.update(stream, woken, |received| {
                    received.stopped.get_or_insert(code.0);
                });
            }
            Event::Unblocked { stream } => self.unblocked.push(in_quic(stream)),
            Event::GoAway { id } => {
                self.go_away = Some(id);
                woken.push(Wake::For(self.handle, Wait::Progress));
                // Requests that wait for stream credit are refused.
                woken.push(Wake::For(self.handle, Wait::Open(Direction::Bi)));
            }
            Event::PriorityUpdate { stream, .. } => self.prioritised.push(in_quic(stream)),
            Event::Settings(_) => {
                woken.push(Wake::For(self.handle, Wait::Progress));
            }
            Event::Datagram { stream, data } => {
                let stream = in_quic(stream);
                if let Some(received) = self.exchanges.get(&stream) {
                    lock(received).datagrams.push(&data);
                    woken.push(Wake::For(self.handle, Wait::StreamDatagram(stream)));
                }
            }
            // WebTransport streams belong to the sessions.
            _ => {}
        }
    }

    /// Updates the received part of an exchange, and wakes its reader.
    fn update<T>(
        &mut self,
        stream: HttpStreamId,
        woken: &mut Vec<Wake>,
        change: impl FnOnce(&mut Received) -> T,
    ) -> Option<T> {
        let stream = in_quic(stream);
        let mut received = lock(self.exchanges.get(&stream)?);
        let changed = change(&mut received);
        if received.is_taken {
            let wake = Wake::For(self.handle, Wait::Read(stream));
            if woken.last() != Some(&wake) {
                woken.push(wake);
            }
        }
        Some(changed)
    }

    /// A request is ready for the application.
    pub(super) fn make_ready(&mut self, stream: StreamId) {
        if let Some(received) = self.exchanges.get(&stream) {
            lock(received).is_ready = true;
            self.ready.push_back(stream);
            self.is_eventful = true;
        }
    }

    /// A request for a session has ended.
    pub(super) fn end_request(&mut self, stream: StreamId, code: Code, woken: &mut Vec<Wake>) {
        self.update(in_http(stream), woken, |received| {
            received.stopped.get_or_insert(code.0);
            received.end(Ending::Reset(code.0));
        });
    }

    /// Forgets a request that the application has not taken; whether there was one.
    pub(super) fn forget_ready(&mut self, stream: StreamId) -> bool {
        let Some(index) = self.ready.iter().position(|ready| *ready == stream) else {
            return false;
        };
        self.ready.remove(index);
        self.remove(stream);
        true
    }

    /// Forgets the received part of an exchange, or of another stream.
    pub(super) fn remove(&mut self, stream: StreamId) -> Option<SharedReceived> {
        self.final_sizes.remove(&stream);
        self.exchanges.remove(&stream)
    }

    /// Forgets an exchange that ended before its head: the application never sees it.
    pub(super) fn forget_unknown(&mut self, stream: StreamId) {
        let is_unknown = |received: &SharedReceived| {
            let received = lock(received);
            !received.is_taken && !received.is_ready
        };
        if self.exchanges.get(&stream).is_some_and(is_unknown) {
            self.remove(stream);
        }
    }

    /// Entries of each table.
    pub fn kept(&self) -> Vec<usize> {
        let mut kept = vec![
            self.connection.request_count(),
            self.exchanges.len(),
            self.ready.len(),
            self.unidirectional.len(),
            self.unblocked.len(),
            self.final_sizes.len(),
        ];
        if let Some(hosted) = &self.webtransport {
            kept.extend(hosted.kept());
        }
        kept
    }

    // --- the application ------------------------------------------------------------------------

    /// Takes the requests that are ready.
    pub fn take_ready(&mut self) -> VecDeque<StreamId> {
        mem::take(&mut self.ready)
    }

    /// Adds a stream that carries a request.
    pub fn add(&mut self, stream: StreamId) {
        self.exchanges.insert(stream, SharedReceived::default());
    }

    /// The received part of an exchange, for the application's only object of it.
    pub fn received(&self, stream: StreamId) -> Option<SharedReceived> {
        let received = self.exchanges.get(&stream)?;
        let was_taken = mem::replace(&mut lock(received).is_taken, true);
        (!was_taken).then(|| SharedReceived::clone(received))
    }
}
