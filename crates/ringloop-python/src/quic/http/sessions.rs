//! The driver's part for WebTransport sessions: events of HTTP/3 and of sessions, and calls of
//! the application. Called by: the driver, and session and stream objects.

use std::mem;
use std::sync::{Arc, Mutex};

use ringloop_h3::webtransport::{self, Direction as HttpDirection, Ending, Error, Sessions};
use ringloop_h3::{Code, ConnectionError, Event, Transmit};
use ringloop_quic::session::{Wait, Wake};
use ringloop_quic::{Bytes, Direction, StreamId};

use super::driver::{Driver, in_http, in_quic};
use super::received::{Section, SharedReceived, lock};
use super::webtransport::{
    Handed, SessionEnd, SessionPhase, SessionState, SharedSession, lock_session,
};
use crate::quic::state::State;

impl Driver {
    /// Offers an event to the sessions; returns it if it is of a plain request.
    pub(super) fn offer(&mut self, event: Event) -> Result<Option<Event>, ConnectionError> {
        let Some(hosted) = &mut self.webtransport else {
            return Ok(Some(event));
        };
        let event = match event {
            Event::Fields { stream, fields } => {
                let id = in_quic(stream);
                let section = Section(fields);
                if let Some(session) = hosted.known.get(&id) {
                    let mut state = lock_session(session);
                    if !section.is_interim() && state.response.is_none() {
                        state.response = Some(Arc::new(Section(section.0.clone())));
                    }
                } else if let Some(received) = self.exchanges.get(&id)
                    && is_webtransport(&section)
                {
                    lock(received).requested = Some(Section(section.0.clone()));
                }
                let fields = section.0;
                Event::Fields { stream, fields }
            }
            Event::Raw { stream, session, data, fin } => {
                self.exchanges.remove(&in_quic(stream));
                self.unidirectional.remove(&in_quic(stream));
                // A slice would keep all of the received batch in memory.
                let mut all = data.to_vec();
                for piece in self.pieces.drain(..) {
                    all.extend_from_slice(&piece);
                }
                let fin = fin || self.is_at_end;
                let data = all.into();
                Event::Raw { stream, session, data, fin }
            }
            event => event,
        };
        hosted.sessions.handle(&mut self.connection, event)
    }

    /// Takes the events of sessions.
    pub(super) fn take_session_events(&mut self, woken: &mut Vec<Wake>) {
        while let Some(hosted) = &mut self.webtransport
            && let Some(event) = hosted.sessions.poll_event()
        {
            self.take_session_event(event, woken);
        }
    }

    fn take_session_event(&mut self, event: webtransport::Event, woken: &mut Vec<Wake>) {
        use webtransport::Event as Of;
        let handle = self.handle;
        let Some(hosted) = &mut self.webtransport else {
            return;
        };
        match event {
            Of::Request { session, protocols, .. } => {
                self.announce_session(in_quic(session), protocols);
            }
            Of::Accepted { session, protocol, .. } => {
                let id = in_quic(session);
                hosted.update(handle, id, Wait::Session(id), woken, |state| {
                    state.phase = SessionPhase::Open;
                    state.protocol = protocol;
                });
            }
            Of::Rejected { session, .. } => {
                hosted.end(handle, in_quic(session), SessionEnd::Rejected, woken);
            }
            Of::Stream { session, stream, data, fin } => {
                let (session, stream) = (in_quic(session), in_quic(stream));
                let handed = Handed { session, data, fin };
                hosted.handed.insert(stream, handed);
                let wait = Wait::SessionStream(session);
                hosted.update(handle, session, wait, woken, |state| {
                    state.streams.push_back(stream);
                });
                if let Some(size) = self.final_sizes.remove(&stream) {
                    self.note_final_size(stream, size);
                }
            }
            Of::Datagram { session, data } => {
                let id = in_quic(session);
                hosted.update(handle, id, Wait::StreamDatagram(id), woken, |state| {
                    state.datagrams.push(&data);
                });
            }
            Of::StreamsUnblocked { direction, .. } => {
                let direction = match direction {
                    HttpDirection::Bidirectional => Direction::Bi,
                    HttpDirection::Unidirectional => Direction::Uni,
                };
                woken.push(Wake::For(handle, Wait::Open(direction)));
            }
            Of::DataUnblocked { session } => self.unlimited.push(in_quic(session)),
            Of::Draining { session } => {
                let id = in_quic(session);
                hosted.update(handle, id, Wait::Session(id), woken, |state| {
                    state.is_draining = true;
                });
            }
            Of::Closed { session, ending } => self.end_session(in_quic(session), ending, woken),
            // A waiter for the peer's SETTINGS is woken by HTTP/3's own event.
            Of::Settings { .. } => {}
        }
    }

    /// Queues a request for a session with the application's other requests.
    fn announce_session(&mut self, stream: StreamId, protocols: Vec<String>) {
        let Some(received) = self.exchanges.get(&stream) else {
            return;
        };
        {
            let mut received = lock(received);
            let section = received.requested.take().unwrap_or_default();
            received.add_section(section);
            received.protocols = protocols;
        }
        self.make_ready(stream);
    }

    fn end_session(&mut self, id: StreamId, ending: Ending, woken: &mut Vec<Wake>) {
        let (end, code) = match ending {
            Ending::Closed { code, reason } => {
                let by_peer = true;
                let end = SessionEnd::Closed { code, reason, by_peer };
                (end, Code::H3_NO_ERROR)
            }
            Ending::Reset { code } => (SessionEnd::Reset(code.0), code),
            Ending::Failed { code, reason } => (SessionEnd::Failed(code.0, reason), code),
        };
        if let Some(hosted) = &mut self.webtransport {
            hosted.end(self.handle, id, end, woken);
        }
        // If it was not accepted, its request has ended.
        self.end_request(id, code, woken);
        self.forget_ready(id);
    }

    // --- the application ------------------------------------------------------------------------

    /// Adds a session for a request of this client, on an open stream.
    pub fn connect_session(
        &mut self,
        stream: StreamId,
        (uri, headers, request): (&http::Uri, http::HeaderMap, Section),
        protocols: &[&str],
    ) -> Result<(), Error> {
        let hosted = self.webtransport.as_mut().ok_or(Error::NotSupported)?;
        let http = &mut self.connection;
        hosted.sessions.connect(http, in_http(stream), uri, headers, protocols)?;
        let state = SessionState { request: Arc::new(request), ..SessionState::default() };
        hosted.known.insert(stream, Arc::new(Mutex::new(state)));
        Ok(())
    }

    /// Whether this client may request a session; `None` before the server's SETTINGS.
    pub fn takes_session(&self) -> Option<Result<(), Error>> {
        let Some(hosted) = &self.webtransport else {
            return Some(Err(Error::NotSupported));
        };
        self.connection.peer_settings()?;
        Some(match hosted.sessions.dialect() {
            None => Err(Error::NotSupported),
            Some(_) if !hosted.sessions.has_room() => Err(Error::TooManySessions),
            Some(_) => Ok(()),
        })
    }

    /// Accepts a requested session; the request's stream belongs to the session from now on.
    pub fn accept_session(
        &mut self,
        stream: StreamId,
        headers: http::HeaderMap,
        protocol: Option<&str>,
    ) -> Result<(), Error> {
        let hosted = self.webtransport.as_mut().ok_or(Error::NotSupported)?;
        let http = &mut self.connection;
        hosted.sessions.accept(http, in_http(stream), headers, protocol)?;
        self.final_sizes.remove(&stream);
        let received = self.exchanges.remove(&stream);
        let request = received.and_then(|received: SharedReceived| lock(&received).head.clone());
        let state = SessionState {
            phase: SessionPhase::Open,
            request: request.unwrap_or_default(),
            protocol: protocol.map(ToOwned::to_owned),
            ..SessionState::default()
        };
        hosted.known.insert(stream, Arc::new(Mutex::new(state)));
        Ok(())
    }

    /// The state of a session, for the application's only object of it.
    pub fn session(&self, stream: StreamId) -> Option<SharedSession> {
        let session = self.webtransport.as_ref()?.known.get(&stream)?;
        let was_taken = mem::replace(&mut lock_session(session).is_taken, true);
        (!was_taken).then(|| SharedSession::clone(session))
    }

    /// Lets `act` use the sessions.
    pub fn with_sessions<T>(
        &mut self,
        act: impl FnOnce(&mut Sessions, &mut ringloop_h3::Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let hosted = self.webtransport.as_mut().ok_or(Error::NotSupported)?;
        act(&mut hosted.sessions, &mut self.connection)
    }

    /// Ends a session for the application; does nothing if it has ended.
    pub fn close_session(&mut self, id: StreamId, end: SessionEnd, woken: &mut Vec<Wake>) {
        let Some(hosted) = &mut self.webtransport else {
            return;
        };
        let (sessions, http) = (&mut hosted.sessions, &mut self.connection);
        // Unknown if it has ended.
        let _known = match &end {
            SessionEnd::Closed { code, reason, .. } => {
                sessions.close(http, in_http(id), *code, reason)
            }
            _ => sessions.abort(http, in_http(id), Code::H3_REQUEST_CANCELLED),
        };
        hosted.end(self.handle, id, end, woken);
    }

    /// Opens a stream in a session; `None` while the peer allows no more.
    pub fn open_in_session(
        &mut self,
        state: &mut State,
        session: StreamId,
        direction: Direction,
    ) -> Result<Option<StreamId>, OpenError> {
        let http_direction = match direction {
            Direction::Bi => HttpDirection::Bidirectional,
            Direction::Uni => HttpDirection::Unidirectional,
        };
        let can_open = self.with_sessions(|sessions, http| {
            sessions.can_open(http, in_http(session), http_direction)
        });
        match can_open {
            Err(Error::Blocked) => return Ok(None),
            can_open => can_open?,
        }
        let Some(stream) = state.open_stream(self.handle, direction)? else {
            return Ok(None);
        };
        let header = self
            .with_sessions(|sessions, http| sessions.open(http, in_http(session), in_http(stream)));
        let header = header?;
        // A reset must tell the peer which session the stream belongs to.
        if let Some((mut connection, _)) = state.sessions.both(self.handle) {
            connection.keep_head(stream, header.len());
        }
        state.write_bytes(self.handle, stream, header)?;
        if let Some(hosted) = &mut self.webtransport {
            let handed = Handed { session, data: Bytes::new(), fin: false };
            hosted.handed.insert(stream, handed);
        }
        Ok(Some(stream))
    }

    /// The session of a stream, for the application's only object of it.
    pub fn take_handed(&mut self, stream: StreamId) -> Option<Handed> {
        self.webtransport.as_mut()?.handed.remove(&stream)
    }

    /// The application has dropped its object of a session's stream.
    pub fn forget_stream(&mut self, session: StreamId, stream: StreamId) {
        if let Some(hosted) = &mut self.webtransport {
            let (sessions, http) = (&mut hosted.sessions, &mut self.connection);
            sessions.leave_stream(http, in_http(session), in_http(stream));
        }
    }

    /// Output of the sessions for QUIC.
    pub(super) fn next_session_transmit(&mut self) -> Option<Transmit> {
        self.webtransport.as_mut()?.sessions.poll_transmit()
    }

    /// Whether a stream's request for a session was neither accepted nor refused.
    pub(super) fn is_session_pending(&self, stream: StreamId) -> bool {
        let hosted = self.webtransport.as_ref();
        hosted.is_some_and(|hosted| hosted.sessions.is_pending(in_http(stream)))
    }

    /// A response has refused a requested session.
    pub(super) fn note_session_rejected(&mut self, stream: StreamId) {
        let _known =
            self.with_sessions(|sessions, http| sessions.note_rejected(http, in_http(stream)));
    }
}

/// Whether a request asks for a session, in any draft.
fn is_webtransport(section: &Section) -> bool {
    let protocol = section.pseudo(b":protocol");
    protocol.is_some_and(|protocol| protocol.starts_with(b"webtransport"))
}

/// Why a stream was not opened.
#[derive(Debug)]
pub enum OpenError {
    Session(Error),
    Quic(ringloop_quic::error::StreamError),
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Session(error)
    }
}

impl From<ringloop_quic::error::StreamError> for OpenError {
    fn from(error: ringloop_quic::error::StreamError) -> Self {
        Self::Quic(error)
    }
}
