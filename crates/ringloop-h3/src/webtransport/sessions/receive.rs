//! Handles the connection's events.

use super::{SESSION_GONE, Sessions};
use crate::limits::{BYTES_AFTER_CLOSE_MAX, CAPSULE_BYTES_EARLY_MAX, PROTOCOLS_MAX};
use crate::qpack::Field;
use crate::webtransport::capsules::{Message, Violation};
use crate::webtransport::early::EarlyStream;
use crate::webtransport::flow::{Flow, Resource};
use crate::webtransport::session::{Session, State};
use crate::webtransport::{Dialect, Ending, Event, codes, dialect, protocols};
use crate::{Code, Connection, ConnectionError, Protocol, Role, StreamId, fields};
use bytes::Bytes;
use http::{HeaderMap, request, response};

type H3Event = crate::Event;

impl Sessions {
    /// Takes an event of the connection; returns it if it does not concern WebTransport, or not only (`Settings`,
    /// `GoAway`).
    ///
    /// # Errors
    /// The peer violates the protocol: close QUIC with this code.
    pub fn handle(
        &mut self,
        h3: &mut Connection,
        event: H3Event,
    ) -> Result<Option<H3Event>, ConnectionError> {
        match event {
            H3Event::Settings(ref settings) => {
                self.terms = dialect::negotiate(&self.config, self.role, settings)?;
                self.has_settings = true;
                self.on_settings(h3);
                return Ok(Some(event));
            }
            H3Event::GoAway { .. } => {
                let mut ids: Vec<StreamId> = self.by_id.keys().copied().collect();
                ids.sort_unstable();
                for id in ids {
                    self.tell_draining(id);
                }
                return Ok(Some(event));
            }
            H3Event::Raw { stream, session, data, fin } => {
                if !session.is_request() {
                    let reason = "the session of a stream is not a request";
                    return Err(ConnectionError::new(Code::H3_ID_ERROR, reason));
                }
                self.on_stream(h3, session, stream, data, fin);
            }
            H3Event::Request { stream, parts } => return Ok(self.on_request(h3, stream, parts)),
            H3Event::Fields { stream, fields } => return Ok(self.on_fields(h3, stream, fields)),
            H3Event::Datagram { stream, data } => return Ok(self.on_datagram(stream, data)),
            event => return Ok(self.on_message(h3, event)),
        }
        Ok(None)
    }

    /// A checked field section of [`crate::Config::raw_fields`]; returned unless the stream belongs to a session.
    fn on_fields(
        &mut self,
        h3: &mut Connection,
        stream: StreamId,
        fields: Vec<Field>,
    ) -> Option<H3Event> {
        if self.by_id.contains_key(&stream) {
            let event = match self.role {
                Role::Client => {
                    let parts = fields::read_response(fields, fields::Kept::All).ok()?;
                    if parts.status.is_informational() {
                        return None;
                    }
                    H3Event::Response { stream, parts }
                }
                Role::Server => H3Event::Trailers { stream, trailers: HeaderMap::new() },
            };
            return self.on_message(h3, event);
        }
        let is_request = fields.iter().any(|field| field.name == b":method"[..]);
        let is_extended = fields.iter().any(|field| field.name == b":protocol"[..]);
        let parts =
            is_extended.then(|| fields::read_request(fields.clone(), true, fields::Kept::All).ok());
        match parts.flatten() {
            Some(parts) if is_webtransport(&parts) => self.on_session_request(h3, stream, parts),
            _ if is_request => {
                self.on_plain_request(stream);
                return Some(H3Event::Fields { stream, fields });
            }
            _ => return Some(H3Event::Fields { stream, fields }),
        }
        None
    }

    /// Further events on the stream of a request.
    fn on_message(&mut self, h3: &mut Connection, event: H3Event) -> Option<H3Event> {
        let (H3Event::Informational { stream: id, .. }
        | H3Event::Response { stream: id, .. }
        | H3Event::Data { stream: id, .. }
        | H3Event::Trailers { stream: id, .. }
        | H3Event::End { stream: id }
        | H3Event::Reset { stream: id, .. }
        | H3Event::Stopped { stream: id, .. }
        | H3Event::Failed { stream: id, .. }
        | H3Event::Unblocked { stream: id }) = event
        else {
            return Some(event);
        };
        if !self.by_id.contains_key(&id) {
            return Some(event);
        }
        match event {
            H3Event::Response { parts, .. } => self.on_response(h3, id, parts),
            H3Event::Data { data, .. } => self.on_data(h3, id, data),
            H3Event::Trailers { .. } => {
                let reason = "a session must not have trailers";
                self.fail(h3, id, Code::H3_MESSAGE_ERROR, reason);
            }
            H3Event::End { .. } => self.on_end(h3, id),
            H3Event::Reset { code, .. } => self.on_reset(h3, id, code),
            H3Event::Stopped { code, .. } => self.on_stopped(h3, id, code),
            H3Event::Failed { code, reason, .. } => {
                self.tell_closed(id, Ending::Failed { code, reason });
                self.forget(id);
            }
            // The caller delivers again.
            H3Event::Unblocked { .. } => return Some(event),
            _ => {}
        }
        None
    }

    fn on_settings(&mut self, h3: &mut Connection) {
        let dialect = self.dialect();
        self.events.push_back(Event::Settings { dialect });
        let mut ids: Vec<StreamId> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        for (at, id) in ids.into_iter().enumerate() {
            if at >= self.sessions_max() {
                self.reset(h3, id, Code::H3_REQUEST_REJECTED);
            } else {
                self.announce(id);
            }
        }
    }

    fn on_request(
        &mut self,
        h3: &mut Connection,
        id: StreamId,
        parts: request::Parts,
    ) -> Option<H3Event> {
        if !is_webtransport(&parts) {
            self.on_plain_request(id);
            return Some(H3Event::Request { stream: id, parts });
        }
        self.on_session_request(h3, id, parts);
        None
    }

    /// Rejects waiting streams that name a plain request as their session.
    fn on_plain_request(&mut self, id: StreamId) {
        self.last_request = self.last_request.max(Some(id));
        let (streams, _) = self.early.take(id);
        for early in streams {
            self.refuse_stream(early.stream, SESSION_GONE);
        }
    }

    fn on_session_request(&mut self, h3: &mut Connection, id: StreamId, parts: request::Parts) {
        self.last_request = self.last_request.max(Some(id));
        let is_full = !self.has_room();
        let is_https = parts.uri.scheme() == Some(&http::uri::Scheme::HTTPS);
        let session = Session::new(State::Held(Box::new(parts)));
        self.by_id.insert(id, session);
        if is_full {
            self.reset(h3, id, Code::H3_REQUEST_REJECTED);
        } else if !is_https {
            self.reset(h3, id, Code::H3_MESSAGE_ERROR);
        } else if self.has_settings {
            self.announce(id);
        }
    }

    /// Reports a request, once the client's SETTINGS have arrived.
    fn announce(&mut self, id: StreamId) {
        let terms = self.terms;
        let Some(session) = self.by_id.get_mut(&id) else {
            return;
        };
        let State::Held(parts) = std::mem::replace(&mut session.state, State::Pending) else {
            return;
        };
        session.set_limits(&self.config, terms.as_ref());
        session.is_draft02_named = parts.headers.contains_key(super::calls::DRAFT02_REQUEST);
        let offered = joined(&parts.headers, "wt-available-protocols");
        let offered = offered.and_then(|text| protocols::parse_list(&text, PROTOCOLS_MAX));
        session.protocols = offered.unwrap_or_default();
        self.events.push_back(Event::Request {
            session: id,
            protocols: session.protocols.clone(),
            parts: *parts,
        });
    }

    fn on_response(&mut self, h3: &mut Connection, id: StreamId, parts: response::Parts) {
        let Some(session) = self.by_id.get_mut(&id) else {
            return;
        };
        if !matches!(session.state, State::Pending) {
            return;
        }
        if !parts.status.is_success() {
            self.events.push_back(Event::Rejected { session: id, parts });
            self.reset(h3, id, Code::H3_REQUEST_CANCELLED);
            return;
        }
        let chosen = joined(&parts.headers, "wt-protocol");
        let protocol = chosen
            .and_then(|text| protocols::parse_item(&text))
            .filter(|_| !session.protocols.is_empty());
        if let Some(protocol) = &protocol
            && !session.protocols.contains(protocol)
        {
            let reason = "the server selected a sub-protocol that was not offered";
            self.fail(h3, id, Code(codes::ALPN_ERROR), reason);
            return;
        }
        session.state = State::Open;
        self.events.push_back(Event::Accepted { session: id, parts, protocol });
        self.deliver_early(h3, id);
    }

    /// Reports the streams and datagrams that waited for a session that is now open.
    pub(super) fn deliver_early(&mut self, h3: &mut Connection, id: StreamId) {
        let (streams, datagrams) = self.early.take(id);
        for early in streams {
            self.on_stream(h3, id, early.stream, early.data, early.fin);
        }
        for data in datagrams {
            self.on_datagram(id, data);
        }
        if let Some(session) = self.by_id.get_mut(&id)
            && session.is_open()
        {
            let held = session.held.split().freeze();
            self.on_data(h3, id, held);
        }
    }

    fn on_stream(
        &mut self,
        h3: &mut Connection,
        id: StreamId,
        stream: StreamId,
        data: Bytes,
        fin: bool,
    ) {
        let state = self.by_id.get(&id).map(|session| &session.state);
        match state {
            Some(State::Open) => self.open_peers_stream(h3, id, stream, data, fin),
            Some(State::Ended { .. }) => self.refuse_stream(stream, SESSION_GONE),
            None if self.role == Role::Client || self.remembered.contains(&id) => {
                self.refuse_stream(stream, SESSION_GONE);
            }
            _ => {
                let early = EarlyStream { session: id, stream, data, fin };
                let known = &self.by_id;
                let refused = self.early.keep_stream(early, |session| known.contains_key(&session));
                for stream in refused {
                    self.refuse_stream(stream, Code(codes::BUFFERED_STREAM_REJECTED));
                }
            }
        }
    }

    fn open_peers_stream(
        &mut self,
        h3: &mut Connection,
        id: StreamId,
        stream: StreamId,
        data: Bytes,
        fin: bool,
    ) {
        let Some(session) = self.by_id.get_mut(&id) else {
            return;
        };
        let added = session.add_peers_stream(stream);
        if let Err(code) = added.and_then(|()| session.receive(stream, data.len() as u64)) {
            self.fail_flow_control(h3, id, code);
            return;
        }
        self.events.push_back(Event::Stream { session: id, stream, data, fin });
    }

    fn on_datagram(&mut self, id: StreamId, data: Bytes) -> Option<H3Event> {
        let state = self.by_id.get(&id).map(|session| &session.state);
        match state {
            Some(State::Open) => self.events.push_back(Event::Datagram { session: id, data }),
            Some(State::Ended { .. }) => {}
            Some(State::Held(_) | State::Pending) => self.early.keep_datagram(id, &data),
            None if self.remembered.contains(&id) => {}
            // Its request has not arrived yet.
            None if self.role == Role::Server && Some(id) > self.last_request => {
                self.early.keep_datagram(id, &data);
            }
            None => return Some(H3Event::Datagram { stream: id, data }),
        }
        None
    }

    fn on_data(&mut self, h3: &mut Connection, id: StreamId, mut body: Bytes) {
        let Some(session) = self.by_id.get_mut(&id) else {
            return;
        };
        match &mut session.state {
            State::Open => self.read_capsules(h3, id, body),
            State::Held(_) | State::Pending => {
                if session.held.len() + body.len() > CAPSULE_BYTES_EARLY_MAX {
                    let reason = "too many capsules before the session was accepted";
                    self.fail(h3, id, Code::H3_EXCESSIVE_LOAD, reason);
                } else {
                    session.held.extend_from_slice(&body);
                }
            }
            State::Ended { by_peer: true, .. } => self.reset(h3, id, Code::H3_MESSAGE_ERROR),
            State::Ended { discarded_bytes, .. } => {
                *discarded_bytes += body.len();
                body.clear();
                if *discarded_bytes > BYTES_AFTER_CLOSE_MAX {
                    h3.stop(id, SESSION_GONE).ok();
                    self.forget(id);
                }
            }
        }
    }

    fn read_capsules(&mut self, h3: &mut Connection, id: StreamId, mut body: Bytes) {
        while let Some(session) = self.by_id.get_mut(&id) {
            if !session.is_open() {
                // Nothing may follow the peer's close.
                if !body.is_empty() {
                    self.on_data(h3, id, body);
                }
                return;
            }
            let message = match session.read(&mut body) {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(violation) => return self.fail(h3, id, violation.code, violation.reason),
            };
            if let Err(violation) = self.on_capsule(h3, id, message) {
                return self.fail(h3, id, violation.code, violation.reason);
            }
        }
    }

    fn on_capsule(
        &mut self,
        h3: &mut Connection,
        id: StreamId,
        message: Message,
    ) -> Result<(), Violation> {
        let violation = |code| Violation {
            code: Code(code),
            reason: "a limit that does not rise, or is too large",
        };
        match message {
            Message::Close { code, reason } => {
                self.tell_closed(id, Ending::Closed { code, reason });
                h3.send_data(id, Bytes::new(), true).ok();
                self.end(h3, id, true);
            }
            Message::Drain => self.tell_draining(id),
            Message::Datagram(data) => {
                self.events.push_back(Event::Datagram { session: id, data });
            }
            Message::Max(resource, limit) => {
                let session = self.by_id.get_mut(&id);
                let Some(flow) = session.and_then(|session| session.flow.as_mut()) else {
                    return Ok(());
                };
                if flow.raise(resource, limit).map_err(violation)? {
                    self.events.push_back(match resource {
                        Resource::Data => Event::DataUnblocked { session: id },
                        Resource::Streams(direction) => {
                            Event::StreamsUnblocked { session: id, direction }
                        }
                    });
                }
            }
            Message::Blocked(resource, limit) => {
                Flow::peer_is_blocked(resource, limit).map_err(violation)?;
            }
        }
        Ok(())
    }

    fn on_end(&mut self, h3: &mut Connection, id: StreamId) {
        let Some(session) = self.by_id.get(&id) else {
            return;
        };
        match session.state {
            State::Ended { .. } => self.forget(id),
            State::Open if !session.is_at_boundary() => {
                let reason = "the session ends within a capsule";
                self.fail(h3, id, Code::H3_MESSAGE_ERROR, reason);
            }
            State::Open => {
                self.tell_closed(id, closed_without_capsule());
                h3.send_data(id, Bytes::new(), true).ok();
                self.forget(id);
            }
            State::Held(_) | State::Pending => {
                self.tell_closed(id, closed_without_capsule());
                self.reset(h3, id, Code::H3_REQUEST_CANCELLED);
            }
        }
    }

    fn on_reset(&mut self, h3: &mut Connection, id: StreamId, code: Code) {
        if self.by_id.get(&id).is_some_and(Session::is_ended) {
            // Our close may still be in flight.
            return self.forget(id);
        }
        self.tell_closed(id, Ending::Reset { code });
        self.reset(h3, id, Code::H3_REQUEST_CANCELLED);
    }

    /// The peer has stopped reading capsules.
    fn on_stopped(&mut self, h3: &mut Connection, id: StreamId, code: Code) {
        match self.by_id.get(&id).map(|session| &session.state) {
            // Its end will arrive.
            Some(State::Ended { .. }) | None => {}
            // Its close may have been overtaken (§6).
            Some(State::Open) if code == SESSION_GONE => self.tell_draining(id),
            // A server that refuses the request may say so before its response arrives.
            Some(State::Pending) if self.role == Role::Client && code == Code::H3_NO_ERROR => {}
            _ => self.on_reset(h3, id, code),
        }
    }
}

fn closed_without_capsule() -> Ending {
    Ending::Closed { code: 0, reason: String::new() }
}

fn is_webtransport(parts: &request::Parts) -> bool {
    let protocol = parts.extensions.get().map(Protocol::as_str);
    [Dialect::Draft02, Dialect::Draft15]
        .into_iter()
        .any(|dialect| protocol == Some(dialect.upgrade_token()))
}

/// The value of a field whose lines are joined by commas (RFC 9651 §4.2); `None` if there is none.
fn joined(headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
    (!lines.is_empty()).then(|| lines.join(&b", "[..]))
}
