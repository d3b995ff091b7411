//! HTTP/3 on a connection: a [`Driver`] between the QUIC core and `ringloop_h3`'s state machine.
//!
//! Owns: the connection's HTTP/3 state, what has arrived of each exchange, requests that the
//! application has not taken. Called by: the endpoint's dispatch with events of QUIC, and the
//! objects of exchanges, both under the endpoint's lock. Calls no Python, and owns none of its
//! objects.
//!
//! Byte path, in: core → `Bytes` → frames → the body's queue ([`Received`]), slices of what was
//! received. Out: `Bytes` of the application behind a frame's head → core or the stream's queue.
//!
//! Back-pressure: a stream whose body's queue is full is not read, so that the peer runs out of
//! credit; the application's reads resume it. Written bytes without credit wait in the
//! stream's queue, as those of plain streams do.

mod received;
mod route;

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;

use ringloop_h3::{
    Code, Config, Connection, ConnectionError, Event as HttpEvent, LocalStreams, Role, Settings,
    StreamId as HttpStreamId, Transmit,
};
use ringloop_quic::core::{Event, Handle, Read};
use ringloop_quic::error::StreamError;
use ringloop_quic::session::{Wait, Wake};
use ringloop_quic::{Bytes, Direction, StreamId};

pub use received::{Ending, Received, Section, SharedReceived, Taken, lock};

use super::state::State;
use crate::limits::{H3_CONTROL_BYTES_MAX, H3_READ_BYTES};

/// The application's protocol of TLS that selects it (RFC 9114 §3.1).
pub const ALPN: &[u8] = b"h3";

/// See the module docs.
#[derive(Debug)]
pub struct Driver {
    handle: Handle,
    role: Role,
    pub connection: Connection,
    exchanges: HashMap<StreamId, SharedReceived>,
    /// Requests with a head that the application has not taken.
    ready: VecDeque<StreamId>,
    /// The peer's unidirectional streams that are read here.
    unidirectional: HashSet<StreamId>,
    /// Streams that are to be read again.
    unblocked: Vec<StreamId>,
    /// Pieces of one read, kept for its memory.
    pieces: Vec<Bytes>,
    /// The peer's GOAWAY.
    pub go_away: Option<u64>,
    /// Requests became ready.
    is_eventful: bool,
}

fn in_http(stream: StreamId) -> HttpStreamId {
    HttpStreamId(stream.0)
}

fn in_quic(stream: HttpStreamId) -> StreamId {
    StreamId(stream.0)
}

impl Driver {
    /// For a connection that has opened `opened` unidirectional streams: the next three are ours.
    pub fn new(handle: Handle, role: Role, opened: u64) -> Self {
        let by_server = u64::from(role == Role::Server);
        let [control, encoder, decoder] =
            [0, 1, 2].map(|number| HttpStreamId((opened + number) << 2 | 2 | by_server));
        let local = LocalStreams {
            control,
            encoder,
            decoder,
        };
        let default = Config::default();
        let config = Config {
            settings: Settings {
                extended_connect: role == Role::Server,
                ..default.settings
            },
            raw_fields: true,
            ..default
        };
        Self {
            handle,
            role,
            connection: Connection::new(role, config, local),
            exchanges: HashMap::new(),
            ready: VecDeque::new(),
            unidirectional: HashSet::new(),
            unblocked: Vec::new(),
            pieces: Vec::new(),
            go_away: None,
            is_eventful: false,
        }
    }

    // --- events of QUIC -------------------------------------------------------------------------

    /// Takes an event; whether it concerns nobody else.
    fn handle_event(
        &mut self,
        state: &mut State,
        event: &Event,
        woken: &mut Vec<Wake>,
    ) -> Result<bool, ConnectionError> {
        let is_handled = match event {
            Event::Opened(_, direction) => {
                while let Some(stream) = state.accept(self.handle, *direction) {
                    match direction {
                        Direction::Bi => {
                            drop(self.exchanges.insert(stream, SharedReceived::default()))
                        }
                        Direction::Uni => drop(self.unidirectional.insert(stream)),
                    }
                    self.read(state, stream, woken)?;
                }
                true
            }
            Event::Readable(_, stream) if self.reads(*stream) => {
                self.read(state, *stream, woken)?;
                true
            }
            Event::Stopped(_, stream, code) => {
                let taken = self.connection.receive_stop(in_http(*stream), Code(*code));
                self.take_events(woken);
                taken?;
                // What is queued is dropped, and a writer woken, as with any stream.
                false
            }
            Event::Connected(_) | Event::Available(_, Direction::Uni) => {
                state.open_queued(self.handle, Direction::Uni);
                false
            }
            _ => false,
        };
        self.read_unblocked(state, woken)?;
        Ok(is_handled)
    }

    /// Whether a stream is HTTP/3's.
    fn reads(&self, stream: StreamId) -> bool {
        match stream.direction() {
            Direction::Bi => self.exchanges.contains_key(&stream),
            Direction::Uni => self.unidirectional.contains(&stream),
        }
    }

    /// Reads a stream as far as there is room for its body.
    fn read(
        &mut self,
        state: &mut State,
        stream: StreamId,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        loop {
            let room = self.room(stream);
            let Some((mut connection, _)) = state.sessions.both(self.handle) else {
                return Ok(());
            };
            if room == 0 {
                return Ok(());
            }
            let pieces = &mut self.pieces;
            let read = connection.read(stream, room, |piece| {
                pieces.push(piece);
                true
            });
            let is_end = matches!(read, Ok(Read::End(_)));
            self.receive(stream, is_end, woken)?;
            match read {
                Ok(Read::Some(_)) => {}
                Err(StreamError::Reset(code)) => {
                    self.unidirectional.remove(&stream);
                    let http = &mut self.connection;
                    let taken = http.receive_reset(in_http(stream), Code(code));
                    self.take_events(woken);
                    self.forget_unknown(stream);
                    return taken;
                }
                Ok(Read::End(_)) => {
                    self.unidirectional.remove(&stream);
                    return Ok(());
                }
                Ok(Read::Blocked) | Err(_) => return Ok(()),
            }
        }
    }

    /// Bytes that may be read from a stream now.
    fn room(&self, stream: StreamId) -> usize {
        if self.connection.is_blocked(in_http(stream)) {
            return 0;
        }
        let received = self.exchanges.get(&stream);
        let room = received.map_or(usize::MAX, |received| lock(received).room());
        room.min(H3_READ_BYTES)
    }

    /// Passes the pieces of a read to HTTP/3.
    fn receive(
        &mut self,
        stream: StreamId,
        is_end: bool,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        let mut pieces = mem::take(&mut self.pieces);
        if is_end && pieces.is_empty() {
            pieces.push(Bytes::new());
        }
        let mut left = pieces.len();
        let mut taken = Ok(());
        for piece in pieces.drain(..) {
            left -= 1;
            let is_last = is_end && left == 0;
            taken = self.connection.receive(in_http(stream), piece, is_last);
            self.take_events(woken);
            if taken.is_err() {
                break;
            }
        }
        pieces.clear();
        self.pieces = pieces;
        taken
    }

    /// Reads streams whose field sections no longer wait for the peer's encoder.
    fn read_unblocked(
        &mut self,
        state: &mut State,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        while let Some(stream) = self.unblocked.pop() {
            self.read(state, stream, woken)?;
        }
        Ok(())
    }

    // --- events of HTTP/3 -----------------------------------------------------------------------

    fn take_events(&mut self, woken: &mut Vec<Wake>) {
        while let Some(event) = self.connection.poll_event() {
            self.take_event(event, woken);
        }
    }

    fn take_event(&mut self, event: HttpEvent, woken: &mut Vec<Wake>) {
        match event {
            HttpEvent::Fields { stream, fields } => {
                let is_head = self.update(stream, woken, |received| {
                    received.add_section(Section(fields))
                });
                if is_head == Some(true) && self.role == Role::Server {
                    self.ready.push_back(in_quic(stream));
                    self.is_eventful = true;
                }
            }
            HttpEvent::Data { stream, data } => {
                self.update(stream, woken, |received| received.add_data(data));
            }
            HttpEvent::End { stream } => {
                self.update(stream, woken, |received| received.end(Ending::Complete));
            }
            HttpEvent::Reset { stream, code } => {
                self.update(stream, woken, |received| {
                    received.end(Ending::Reset(code.0))
                });
                if self.forget_ready(in_quic(stream)) {
                    // Nobody will answer it.
                    let _ended = self.connection.cancel(stream, Code::H3_REQUEST_CANCELLED);
                }
            }
            HttpEvent::Failed {
                stream,
                code,
                reason,
            } => {
                self.update(stream, woken, |received| {
                    received.stopped.get_or_insert(code.0);
                    received.end(Ending::Failed(code.0, reason));
                });
                woken.push(Wake::For(self.handle, Wait::Write(in_quic(stream))));
                self.forget_ready(in_quic(stream));
            }
            HttpEvent::Stopped { stream, code } => {
                self.update(stream, woken, |received| {
                    received.stopped.get_or_insert(code.0);
                });
            }
            HttpEvent::Unblocked { stream } => self.unblocked.push(in_quic(stream)),
            HttpEvent::GoAway { id } => {
                self.go_away = Some(id);
                woken.push(Wake::For(self.handle, Wait::Progress));
            }
            HttpEvent::Settings(_) => {
                woken.push(Wake::For(self.handle, Wait::Progress));
            }
            // Neither datagrams nor streams of WebTransport are enabled, and QUIC sends in the order
            // of writing.
            _ => {}
        }
    }

    /// Changes what has arrived of an exchange, and wakes its reader.
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

    /// Forgets a request that the application has not taken; whether there was one.
    fn forget_ready(&mut self, stream: StreamId) -> bool {
        let Some(index) = self.ready.iter().position(|ready| *ready == stream) else {
            return false;
        };
        self.ready.remove(index);
        self.exchanges.remove(&stream);
        true
    }

    /// Forgets an exchange of which the application will not know: it ended before its head.
    fn forget_unknown(&mut self, stream: StreamId) {
        let is_unknown = |received: &SharedReceived| {
            let received = lock(received);
            !received.is_taken && received.head.is_none()
        };
        if self.exchanges.get(&stream).is_some_and(is_unknown) {
            self.exchanges.remove(&stream);
        }
    }

    // --- the application ------------------------------------------------------------------------

    /// Takes the requests that have arrived.
    pub fn take_ready(&mut self) -> VecDeque<StreamId> {
        mem::take(&mut self.ready)
    }

    /// Adds a request of ours.
    pub fn add(&mut self, stream: StreamId) {
        self.exchanges.insert(stream, SharedReceived::default());
    }

    /// What has arrived of an exchange, for the application's only object of it.
    pub fn received(&self, stream: StreamId) -> Option<SharedReceived> {
        let received = self.exchanges.get(&stream)?;
        let was_taken = mem::replace(&mut lock(received).is_taken, true);
        (!was_taken).then(|| SharedReceived::clone(received))
    }

    /// Reads a stream again, as its body's queue has room.
    pub fn resume(
        &mut self,
        state: &mut State,
        stream: StreamId,
        woken: &mut Vec<Wake>,
    ) -> Result<(), ConnectionError> {
        self.read(state, stream, woken)?;
        self.read_unblocked(state, woken)
    }

    /// The application has dropped its object. What it has not ended is cancelled; of a request that
    /// was answered no more is read (RFC 9114 §4.1).
    pub fn forget(&mut self, state: &mut State, stream: StreamId, has_ended: bool) {
        self.exchanges.remove(&stream);
        let code = match self.role {
            Role::Client => Code::H3_REQUEST_CANCELLED,
            Role::Server if has_ended => Code::H3_NO_ERROR,
            Role::Server => Code::H3_INTERNAL_ERROR,
        };
        // Unknown if both sides have ended.
        let _known = if has_ended {
            self.connection.stop(in_http(stream), code)
        } else {
            self.connection.cancel(in_http(stream), code)
        };
        if let Some(session) = state.sessions.get(self.handle) {
            session.forget_finish(stream);
        }
    }

    // --- output ---------------------------------------------------------------------------------

    /// Gives QUIC what is to be sent. A stream may be gone by now: then that is dropped.
    fn transmit(&mut self, state: &mut State) -> Result<(), ConnectionError> {
        while let Some(transmit) = self.connection.poll_transmit() {
            match transmit {
                Transmit::Stream { stream, data, fin } => self.send(state, stream, data, fin)?,
                Transmit::Reset { stream, code } => {
                    drop(state.reset(self.handle, in_quic(stream), code.0));
                }
                Transmit::Stop { stream, code } => {
                    self.unidirectional.remove(&in_quic(stream));
                    self.forget_unknown(in_quic(stream));
                    drop(state.stop(self.handle, in_quic(stream), code.0));
                }
                Transmit::Datagram(data) => {
                    if let Ok((mut connection, _)) = state.sessions.open(self.handle) {
                        drop(connection.send_datagram(data, true));
                    }
                }
            }
        }
        Ok(())
    }

    fn send(
        &self,
        state: &mut State,
        stream: HttpStreamId,
        data: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        let (handle, id) = (self.handle, in_quic(stream));
        let is_own = !stream.is_bidirectional();
        // Without credit for it, the data waits in its queue.
        if is_own && state.open_up_to(handle, id).is_err() {
            return Ok(());
        }
        let written = state.write_bytes(handle, id, data);
        if fin && written.is_ok() {
            drop(state.finish(handle, id));
        }
        if is_own && written == Ok(false) {
            let session = state.sessions.get(handle);
            let queued = session.and_then(|session| session.attached.queued.get(&id));
            if queued.is_some_and(|queued| queued.len() > H3_CONTROL_BYTES_MAX) {
                return Err(ConnectionError::new(
                    Code::H3_EXCESSIVE_LOAD,
                    "no credit for the control and QPACK streams",
                ));
            }
        }
        Ok(())
    }
}
