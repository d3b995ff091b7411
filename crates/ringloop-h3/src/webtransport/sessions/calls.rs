//! The application's calls.

use super::{SESSION_GONE, Sessions};
use crate::webtransport::flow::Resource;
use crate::webtransport::session::{Counts, Session, State};
use crate::webtransport::{Dialect, Direction, Error, capsules, protocols};
use crate::{Code, Connection, Protocol, Role, StreamId, varint};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};

/// A draft 02 client names its version, and its server responds.
pub(super) const DRAFT02_REQUEST: HeaderName =
    HeaderName::from_static("sec-webtransport-http3-draft02");
const DRAFT02_RESPONSE: HeaderName = HeaderName::from_static("sec-webtransport-http3-draft");
const AVAILABLE_PROTOCOLS: HeaderName = HeaderName::from_static("wt-available-protocols");
const PROTOCOL: HeaderName = HeaderName::from_static("wt-protocol");

/// First bytes of a bidirectional stream (§4.3) and type of a unidirectional one (§4.2).
const BIDIRECTIONAL_SIGNAL: u64 = 0x41;
const UNIDIRECTIONAL_TYPE: u64 = 0x54;

impl Sessions {
    /// A client's: requests a session at `uri` (`https`, with authority), on a bidirectional stream that the caller has
    /// opened and that names the session from now on.
    ///
    /// `protocols` are offered, the preferred first. Streams may be opened and datagrams sent before the response.
    ///
    /// # Errors
    /// [`Error::NotSupported`], [`Error::TooManySessions`], [`Error::Invalid`], and those of
    /// [`Connection::send_request`].
    pub fn connect(
        &mut self,
        h3: &mut Connection,
        stream: StreamId,
        uri: &Uri,
        mut headers: HeaderMap,
        protocols: &[&str],
    ) -> Result<(), Error> {
        if self.role == Role::Server {
            return Err(Error::Unexpected("a server does not open sessions"));
        }
        let Some(dialect) = self.dialect() else {
            return Err(Error::NotSupported);
        };
        if !self.has_room() {
            return Err(Error::TooManySessions);
        }
        if uri.scheme() != Some(&http::uri::Scheme::HTTPS) || uri.authority().is_none() {
            return Err(Error::Invalid("the URI of a session must be https with an authority"));
        }
        if !protocols.is_empty() {
            let list = protocols::write_list(protocols);
            headers.insert(AVAILABLE_PROTOCOLS, field_value(list)?);
        }
        if dialect == Dialect::Draft02 {
            headers.insert(DRAFT02_REQUEST, HeaderValue::from_static("1"));
        }
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::CONNECT;
        parts.uri = uri.clone();
        parts.headers = headers;
        parts.extensions.insert(Protocol::new(dialect.upgrade_token()));
        h3.send_request(stream, &parts, false)?;
        let mut session = Session::new(State::Pending);
        session.protocols = protocols.iter().map(ToString::to_string).collect();
        session.set_limits(&self.config, self.terms.as_ref());
        self.by_id.insert(stream, session);
        Ok(())
    }

    /// A server's: accepts a session, with status 200, `headers`, and one of the sub-protocols that the client offers.
    ///
    /// Streams and datagrams that waited for the session follow as events.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::Unexpected`], [`Error::Invalid`], and those of [`Connection::send_response`].
    pub fn accept(
        &mut self,
        h3: &mut Connection,
        session: StreamId,
        mut headers: HeaderMap,
        protocol: Option<&str>,
    ) -> Result<(), Error> {
        let pending = self.pending(session)?;
        if let Some(protocol) = protocol {
            if !pending.protocols.iter().any(|offered| offered == protocol) {
                return Err(Error::Invalid("the client does not offer this sub-protocol"));
            }
            headers.insert(PROTOCOL, field_value(protocols::write_item(protocol))?);
        }
        if pending.is_draft02_named {
            headers.insert(DRAFT02_RESPONSE, HeaderValue::from_static("draft02"));
        }
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.headers = headers;
        h3.send_response(session, &parts, false)?;
        pending.state = State::Open;
        self.deliver_early(h3, session);
        Ok(())
    }

    /// A server's: refuses a session with a status that is not 2xx: 404 or 405 for a path without sessions, 403 for a
    /// forbidden `origin`, 429 for too many sessions.
    ///
    /// # Errors
    /// As [`Sessions::accept`].
    pub fn reject(
        &mut self,
        h3: &mut Connection,
        session: StreamId,
        status: StatusCode,
        headers: HeaderMap,
    ) -> Result<(), Error> {
        self.pending(session)?;
        if status.is_success() || status.is_informational() {
            return Err(Error::Invalid("a refusal's status must be 300 or more"));
        }
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = status;
        parts.headers = headers;
        h3.send_response(session, &parts, true)?;
        self.note_rejected(h3, session)
    }

    /// A server's: the caller itself has sent a final response that is not 2xx, perhaps with a body. From now on this is a
    /// plain request, which is no longer read.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::Unexpected`].
    pub fn note_rejected(&mut self, h3: &mut Connection, session: StreamId) -> Result<(), Error> {
        self.pending(session)?;
        h3.stop(session, Code::H3_NO_ERROR).ok();
        self.forget(session);
        Ok(())
    }

    /// True if the server has not yet responded to the request for a session.
    pub fn is_pending(&self, session: StreamId) -> bool {
        let state = self.by_id.get(&session).map(|session| &session.state);
        self.role == Role::Server && matches!(state, Some(State::Pending))
    }

    /// Closes a session with the application's code and reason, which is cut at 1024 bytes. Resets all its streams.
    ///
    /// If a client closes a session before the response, the request is cancelled, without code and reason.
    /// Before closing QUIC, wait until the peer has ended its sides: see [`Connection::request_count`].
    ///
    /// # Errors
    /// [`Error::UnknownSession`]; [`Error::Unexpected`] at a server that has not answered.
    pub fn close(
        &mut self,
        h3: &mut Connection,
        session: StreamId,
        code: u32,
        reason: &str,
    ) -> Result<(), Error> {
        if !self.usable(session)?.is_open() {
            self.reset(h3, session, Code::H3_REQUEST_CANCELLED);
            return Ok(());
        }
        match h3.send_data(session, capsules::close(code, reason), true) {
            Ok(()) => self.end(h3, session, false),
            // The peer has stopped reading.
            Err(_) => self.reset(h3, session, SESSION_GONE),
        }
        Ok(())
    }

    /// Ends a session in any state by a reset with an HTTP/3 code, such as [`codes::ALPN_ERROR`](super::super::codes) if
    /// a required sub-protocol was not selected.
    ///
    /// # Errors
    /// [`Error::UnknownSession`].
    pub fn abort(
        &mut self,
        h3: &mut Connection,
        session: StreamId,
        code: Code,
    ) -> Result<(), Error> {
        self.live(session)?;
        self.reset(h3, session, code);
        Ok(())
    }

    /// Asks the peer to finish a session; everything still works. [`Connection::go_away`] asks this for all sessions.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::Unexpected`], and those of [`Connection::send_data`].
    pub fn drain(&mut self, h3: &mut Connection, session: StreamId) -> Result<(), Error> {
        self.usable(session)?;
        h3.send_data(session, capsules::drain(), false)?;
        Ok(())
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::Unexpected`], and those of [`Connection::send_datagram`].
    pub fn send_datagram(
        &mut self,
        h3: &mut Connection,
        session: StreamId,
        data: Bytes,
    ) -> Result<(), Error> {
        self.usable(session)?;
        h3.send_datagram(session, data)?;
        Ok(())
    }

    /// Checks if a stream may be opened, before it is opened in QUIC.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::Unexpected`], [`Error::Blocked`].
    pub fn can_open(
        &mut self,
        h3: &mut Connection,
        session: StreamId,
        direction: Direction,
    ) -> Result<(), Error> {
        let Some(flow) = &mut self.usable(session)?.flow else {
            return Ok(());
        };
        let resource = Resource::Streams(direction);
        if flow.available(resource) > 0 {
            return Ok(());
        }
        let limit = flow.block(resource);
        let capsule = limit.map(|limit| capsules::blocked(resource, limit));
        Self::send_capsules(h3, session, capsule);
        Err(Error::Blocked)
    }

    /// Adds a stream, opened in QUIC, to a session: returns the bytes to send before all others.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::Unexpected`], [`Error::Blocked`].
    pub fn open(
        &mut self,
        h3: &mut Connection,
        session: StreamId,
        stream: StreamId,
    ) -> Result<Bytes, Error> {
        if stream.initiator() != self.role {
            return Err(Error::Unexpected("the peer opened this stream"));
        }
        let direction = Direction::of(stream);
        self.can_open(h3, session, direction)?;
        let opened = self.usable(session)?;
        if opened.streams.contains_key(&stream) {
            return Err(Error::Unexpected("the stream is already in the session"));
        }
        opened.streams.insert(stream, Counts::default());
        if let Some(flow) = &mut opened.flow {
            flow.take(Resource::Streams(direction), 1);
        }
        let mut header = Vec::new();
        let signal = match direction {
            Direction::Bidirectional => BIDIRECTIONAL_SIGNAL,
            Direction::Unidirectional => UNIDIRECTIONAL_TYPE,
        };
        varint::write(&mut header, signal);
        varint::write(&mut header, session.0);
        Ok(header.into())
    }

    /// A stream has ended, in all its directions.
    ///
    /// `final_size` is QUIC's final size of its receiving side, less its header; `None` if all of it was passed to
    /// [`Sessions::received`]. With flow control this lets the peer open and send more.
    pub fn stream_ended(
        &mut self,
        h3: &mut Connection,
        session: StreamId,
        stream: StreamId,
        final_size: Option<u64>,
    ) {
        let is_peers = stream.initiator() != self.role;
        let Some(live) = self.by_id.get_mut(&session) else {
            return;
        };
        match live.remove_stream(stream, final_size, is_peers) {
            Ok(capsules) => Self::send_capsules(h3, session, capsules),
            Err(code) => self.fail_flow_control(h3, session, code),
        }
    }

    /// The application has finished with a stream, which may have been stopped or reset: as [`Sessions::stream_ended`].
    /// With flow control, if the peer sends on the stream, [`Sessions::final_size`] must be called as well.
    pub fn leave_stream(&mut self, h3: &mut Connection, session: StreamId, stream: StreamId) {
        let is_peers = stream.initiator() != self.role;
        let live = self.by_id.get_mut(&session);
        if live.is_some_and(|live| live.leave(stream, is_peers)) {
            self.stream_ended(h3, session, stream, None);
        }
    }

    /// With flow control: QUIC's final size of the receiving side of a stream, which both ends count against the session's
    /// limit, however much was read (draft-ietf-webtrans-http3-16 §5.4). False if the stream is not, or not yet, in a
    /// session: call again at its [`Event::Stream`](super::super::Event).
    pub fn final_size(&mut self, h3: &mut Connection, stream: StreamId, size: u64) -> bool {
        let of = self.by_id.iter_mut().find(|(_, live)| live.streams.contains_key(&stream));
        let Some((&session, live)) = of else {
            return false;
        };
        let is_ours = stream.initiator() == self.role;
        // Both signals have two bytes.
        let header_len = if is_ours { 0 } else { 2 + varint::len(session.0) as u64 };
        if live.note_final_size(stream, size.saturating_sub(header_len)) {
            self.stream_ended(h3, session, stream, None);
        }
        true
    }

    /// With flow control: `len` bytes of a stream have arrived after those of [`Event::Stream`](super::super::Event).
    pub fn received(&mut self, h3: &mut Connection, session: StreamId, stream: StreamId, len: u64) {
        if let Some(live) = self.by_id.get_mut(&session)
            && let Err(code) = live.receive(stream, len)
        {
            self.fail_flow_control(h3, session, code);
        }
    }

    /// With flow control: the application has read `len` bytes of a stream, and the peer may send as many more.
    pub fn read(&mut self, h3: &mut Connection, session: StreamId, stream: StreamId, len: u64) {
        if let Some(live) = self.by_id.get_mut(&session) {
            let capsule = live.take(stream, len);
            Self::send_capsules(h3, session, capsule);
        }
    }

    /// Returns how many of `wanted` bytes may be sent now on streams of a session, and counts them as sent. All of them
    /// without flow control.
    ///
    /// # Errors
    /// [`Error::UnknownSession`], [`Error::Unexpected`].
    pub fn reserve(
        &mut self,
        h3: &mut Connection,
        session: StreamId,
        wanted: u64,
    ) -> Result<u64, Error> {
        let Some(flow) = &mut self.usable(session)?.flow else {
            return Ok(wanted);
        };
        let granted = flow.take(Resource::Data, wanted);
        if granted < wanted {
            let limit = flow.block(Resource::Data);
            let capsule = limit.map(|limit| capsules::blocked(Resource::Data, limit));
            Self::send_capsules(h3, session, capsule);
        }
        Ok(granted)
    }

    /// Returns bytes that were reserved but not sent, because QUIC accepted fewer.
    pub fn unreserve(&mut self, session: StreamId, len: u64) {
        let live = self.by_id.get_mut(&session);
        if let Some(flow) = live.and_then(|live| live.flow.as_mut()) {
            flow.give_back(Resource::Data, len);
        }
    }

    /// A session that has not ended.
    fn live(&mut self, id: StreamId) -> Result<&mut Session, Error> {
        let session = self.by_id.get_mut(&id);
        session.filter(|session| !session.is_ended()).ok_or(Error::UnknownSession)
    }

    /// A session that the application may use: a client need not wait for the response.
    fn usable(&mut self, id: StreamId) -> Result<&mut Session, Error> {
        let is_client = self.role == Role::Client;
        let session = self.live(id)?;
        if !session.is_open() && !is_client {
            return Err(Error::Unexpected("the session has not been accepted"));
        }
        Ok(session)
    }

    /// A session without a response of the server yet.
    fn pending(&mut self, id: StreamId) -> Result<&mut Session, Error> {
        let is_server = self.role == Role::Server;
        let session = self.live(id)?;
        if !is_server || !matches!(session.state, State::Pending) {
            return Err(Error::Unexpected("the session does not wait for our response"));
        }
        Ok(session)
    }
}

fn field_value(text: Option<String>) -> Result<HeaderValue, Error> {
    let text = text.ok_or(Error::Invalid("a sub-protocol must be printable ASCII"))?;
    HeaderValue::try_from(text)
        .map_err(|_| Error::Invalid("a sub-protocol must be printable ASCII"))
}
