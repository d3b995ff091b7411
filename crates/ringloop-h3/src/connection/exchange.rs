//! A request and its responses: the state of one bidirectional stream.
//!
//! # Receiving
//! ```text
//! Start ─ first frame ─► Headers ─ HEADERS ─► Body ─ HEADERS ─► Trailers
//!   │                    (1xx: again)           └──── end ────────┴─► Ended
//!   └─ signal of WebTransport: the stream is the caller's
//! ```
//! A client's own requests begin at `Headers`. Resets, violations and [`Exchange::stop`] lead to `Ended` from anywhere.

mod sending;

use super::shared::Shared;
use crate::error::{Code, ConnectionError};
use crate::event::Event;
use crate::fields::{self, Kept, Malformed};
use crate::frame::{self, Item, Reader};
use crate::priority::Priority;
use crate::qpack::{self, Decoded, Field, Line};
use crate::stream_id::{Role, StreamId};
use bytes::Bytes;
use http::{Method, StatusCode, request};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Exchange {
    id: StreamId,
    reader: Reader,
    receiving: Receiving,
    sending: Sending,
    /// Input after a section that waits for the encoder stream.
    held: Option<Held>,
    /// The body that the peer's message may have.
    body: Body,
    /// The body of our message.
    sent: SentBody,
    /// The response has no content, because of its request (HEAD) or its status: its body is dropped.
    is_bodiless: bool,
    is_connect: bool,
    /// The peer's `STOP_SENDING`, received before the application knew the stream.
    stopped: Option<Code>,
    /// Counted as cancelled by the peer.
    is_cancelled: bool,
    pub(super) priority: Priority,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Start,
    Headers,
    Body,
    Trailers,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    Headers,
    Body,
    Ended,
}

#[derive(Debug, Default)]
struct Held {
    input: VecDeque<Bytes>,
    bytes: usize,
    fin: bool,
}

/// The body that is being received.
#[derive(Debug, Default)]
struct Body {
    declared_bytes: Option<u64>,
    received_bytes: u64,
    /// A response to HEAD, for example (RFC 9110 §6.4.1).
    is_forbidden: bool,
    /// After CONNECT only DATA follows (RFC 9114 §4.4).
    is_tunnel: bool,
}

/// The body that is being sent.
#[derive(Debug, Default)]
struct SentBody {
    /// `None` if the length was not declared, or does not count.
    declared_bytes: Option<u64>,
    bytes: u64,
}

/// The result of a frame.
enum Step {
    Continue,
    /// A section waits for the encoder stream.
    Blocked,
    /// The stream has ended, or is not ours.
    Over,
    /// It belongs to a WebTransport session.
    Raw(StreamId),
}

impl Exchange {
    /// A stream that the peer has opened.
    pub(super) fn incoming(id: StreamId) -> Self {
        Self::new(id, Receiving::Start)
    }

    /// A stream for a request of ours.
    pub(super) fn outgoing(id: StreamId, parts: &request::Parts) -> Self {
        let mut exchange = Self::new(id, Receiving::Headers);
        exchange.is_bodiless = parts.method == Method::HEAD;
        exchange.is_connect = parts.method == Method::CONNECT;
        exchange
    }

    /// The same, for a request as the caller has written it.
    pub(super) fn outgoing_lines(id: StreamId, lines: &[Line<'_>]) -> Self {
        let mut exchange = Self::new(id, Receiving::Headers);
        let method = value_of(lines, b":method");
        exchange.is_bodiless = method == b"HEAD";
        exchange.is_connect = method == b"CONNECT";
        exchange
    }

    fn new(id: StreamId, receiving: Receiving) -> Self {
        Self {
            id,
            reader: Reader::default(),
            receiving,
            sending: Sending::Headers,
            held: None,
            body: Body::default(),
            sent: SentBody::default(),
            is_bodiless: false,
            is_connect: false,
            stopped: None,
            is_cancelled: false,
            priority: Priority::default(),
        }
    }

    /// True if both sides have ended.
    pub(super) fn is_over(&self) -> bool {
        self.receiving == Receiving::Ended && self.sending == Sending::Ended
    }

    /// True if it ended without the peer cancelling it.
    pub(super) fn is_answered(&self) -> bool {
        self.is_over() && !self.is_cancelled
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.held.is_some()
    }

    /// True if the application has seen it.
    pub(super) fn is_known(&self, cx: &Shared) -> bool {
        cx.role == Role::Client || !matches!(self.receiving, Receiving::Start | Receiving::Headers)
    }

    // --- receiving ------------------------------------------------------------------------------

    pub(super) fn receive(
        &mut self,
        cx: &mut Shared,
        mut input: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        if let Some(held) = &mut self.held {
            return held.push(cx.config.blocked_bytes_max, input, fin);
        }
        if self.receiving == Receiving::Ended {
            return Ok(());
        }
        while let Some(item) = self.reader.next(&mut input) {
            let step = match item {
                Item::Head { kind, len } => self.head(cx, kind, len)?,
                Item::Part(data) => {
                    let stream = self.id;
                    cx.events.push_back(Event::Data { stream, data });
                    Step::Continue
                }
                Item::Whole { payload, .. } => self.section(cx, payload)?,
            };
            match step {
                Step::Continue => {}
                Step::Blocked => {
                    let mut held = Held::default();
                    held.push(cx.config.blocked_bytes_max, input, fin)?;
                    self.held = Some(held);
                    return Ok(());
                }
                Step::Over => return Ok(()),
                Step::Raw(session) => {
                    self.forget();
                    cx.events.push_back(Event::Raw { stream: self.id, session, data: input, fin });
                    return Ok(());
                }
            }
        }
        if fin { self.finish(cx) } else { Ok(()) }
    }

    /// A frame begins.
    fn head(&mut self, cx: &mut Shared, kind: u64, len: u64) -> Result<Step, ConnectionError> {
        let unexpected = |reason| Err(ConnectionError::new(Code::H3_FRAME_UNEXPECTED, reason));
        if kind == frame::WT_STREAM && cx.config.raw_streams {
            return self.raw(len);
        }
        if !self.id.is_request() {
            return Err(ConnectionError::new(
                Code::H3_STREAM_CREATION_ERROR,
                "a bidirectional stream opened by a server",
            ));
        }
        if self.receiving == Receiving::Start && !self.accept(cx)? {
            return Ok(Step::Over);
        }
        match (kind, self.receiving) {
            (frame::DATA, Receiving::Body) => self.data(cx, len),
            (frame::DATA, _) => unexpected("DATA before HEADERS or after trailers"),
            (frame::HEADERS, Receiving::Body) if self.body.is_tunnel => {
                unexpected("HEADERS after CONNECT")
            }
            (frame::HEADERS, Receiving::Headers | Receiving::Body) => {
                if len > cx.section_bytes_max() {
                    return self.fail_too_long(cx);
                }
                self.reader.gather(kind);
                Ok(Step::Continue)
            }
            (frame::HEADERS, _) => unexpected("HEADERS after trailers"),
            (frame::PUSH_PROMISE, _) if cx.role == Role::Client => {
                Err(ConnectionError::new(Code::H3_ID_ERROR, "PUSH_PROMISE, but no push is allowed"))
            }
            (
                frame::PUSH_PROMISE
                | frame::CANCEL_PUSH
                | frame::SETTINGS
                | frame::GOAWAY
                | frame::MAX_PUSH_ID
                | frame::PRIORITY_UPDATE_OF_REQUEST
                | frame::PRIORITY_UPDATE_OF_PUSH,
                _,
            ) => unexpected("a frame that is not allowed on a request stream"),
            _ if frame::is_http2(kind) => unexpected("an HTTP/2 frame"),
            _ => {
                cx.idle_frame()?;
                Ok(Step::Continue)
            }
        }
    }

    /// The signal of a WebTransport stream of the session `session`.
    fn raw(&self, session: u64) -> Result<Step, ConnectionError> {
        if self.receiving != Receiving::Start {
            let reason = "WT_STREAM not at the start of a stream";
            return Err(ConnectionError::new(Code::H3_FRAME_ERROR, reason));
        }
        session_id(session).map(Step::Raw)
    }

    /// Takes a new request, unless the shutdown precludes it (RFC 9114 §5.2).
    fn accept(&mut self, cx: &mut Shared) -> Result<bool, ConnectionError> {
        if cx.go_away_sent.is_some_and(|end| self.id.0 >= end) {
            cx.decoder.cancel(self.id.0);
            cx.reset(self.id, Code::H3_REQUEST_REJECTED);
            cx.stop(self.id, Code::H3_REQUEST_REJECTED);
            self.forget();
            self.count_cancelled(cx)?;
            return Ok(false);
        }
        cx.requests_end = cx.requests_end.max(self.id.0 + 4);
        self.receiving = Receiving::Headers;
        Ok(true)
    }

    /// A DATA frame begins.
    fn data(&mut self, cx: &mut Shared, len: u64) -> Result<Step, ConnectionError> {
        if len == 0 {
            cx.idle_frame()?;
            return Ok(Step::Continue);
        }
        cx.progress();
        self.body.received_bytes = self.body.received_bytes.saturating_add(len);
        let declared_bytes = self.body.declared_bytes;
        if declared_bytes.is_some_and(|declared| self.body.received_bytes > declared) {
            return self.fail(cx, Code::H3_MESSAGE_ERROR, "more DATA than content-length");
        }
        if self.body.is_forbidden {
            return self.fail(cx, Code::H3_MESSAGE_ERROR, "DATA in a response without a body");
        }
        self.reader.pass();
        Ok(Step::Continue)
    }

    /// The payload of a HEADERS frame.
    fn section(&mut self, cx: &mut Shared, payload: Bytes) -> Result<Step, ConnectionError> {
        match cx.decoder.decode(self.id.0, payload) {
            Ok(Decoded::Fields(fields)) => self.fields(cx, fields),
            Ok(Decoded::Blocked) => Ok(Step::Blocked),
            Err(qpack::Error::SectionTooLong) => self.fail_too_long(cx),
            Err(error) => Err(error.into()),
        }
    }

    fn fields(&mut self, cx: &mut Shared, fields: Vec<Field>) -> Result<Step, ConnectionError> {
        if fields.len() > cx.config.fields_max {
            return self.fail_too_long(cx);
        }
        cx.progress();
        let raw = cx.config.raw_fields.then(|| fields.clone());
        let taken = match (self.receiving, cx.role) {
            (Receiving::Body, _) => self.trailers(fields),
            (_, Role::Server) => self.request(cx, fields),
            (_, Role::Client) => self.response(cx, fields),
        };
        let event = match taken {
            Ok(event) => event,
            Err(Malformed(reason)) => return self.fail(cx, Code::H3_MESSAGE_ERROR, reason),
        };
        let stream = self.id;
        cx.events.push_back(raw.map_or(event, |fields| Event::Fields { stream, fields }));
        if let Some(code) = self.stopped.take() {
            cx.events.push_back(Event::Stopped { stream, code });
        }
        Ok(Step::Continue)
    }

    fn request(&mut self, cx: &mut Shared, fields: Vec<Field>) -> Result<Event, Malformed> {
        let parts = fields::read_request(fields, cx.config.settings.extended_connect, kept(cx))?;
        self.is_bodiless = parts.method == Method::HEAD;
        self.is_connect = parts.method == Method::CONNECT;
        self.body.is_tunnel = self.is_connect;
        let declared_bytes = fields::content_length(&parts.headers)?;
        self.body.declared_bytes = declared_bytes.filter(|_| !self.is_connect);
        let early = cx.take_early_priority(self.id);
        self.priority = early.unwrap_or_else(|| Priority::of(&parts.headers));
        self.receiving = Receiving::Body;
        let stream = self.id;
        Ok(Event::Request { stream, parts })
    }

    fn response(&mut self, cx: &Shared, fields: Vec<Field>) -> Result<Event, Malformed> {
        let parts = fields::read_response(fields, kept(cx))?;
        let stream = self.id;
        let status = parts.status;
        if status.is_informational() {
            return Ok(Event::Informational { stream, parts });
        }
        self.body.is_tunnel = self.is_connect && status.is_success();
        let declared_bytes = fields::content_length(&parts.headers);
        self.body.is_forbidden = !self.body.is_tunnel
            && (self.is_bodiless
                || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED));
        // Ignored in these (RFC 9110 §8.6, §9.3.6).
        if !self.body.is_tunnel && !self.body.is_forbidden {
            self.body.declared_bytes = declared_bytes?;
        }
        self.receiving = Receiving::Body;
        Ok(Event::Response { stream, parts })
    }

    fn trailers(&mut self, fields: Vec<Field>) -> Result<Event, Malformed> {
        let trailers = fields::read_trailers(fields)?;
        self.receiving = Receiving::Trailers;
        let stream = self.id;
        Ok(Event::Trailers { stream, trailers })
    }

    /// The peer's side of the stream has ended.
    fn finish(&mut self, cx: &mut Shared) -> Result<(), ConnectionError> {
        if !self.id.is_request() {
            self.forget();
            return Ok(());
        }
        if !self.reader.is_between_frames() {
            let reason = "the stream ends within a frame";
            return Err(ConnectionError::new(Code::H3_FRAME_ERROR, reason));
        }
        let is_started = matches!(self.receiving, Receiving::Body | Receiving::Trailers);
        let received_bytes = self.body.received_bytes;
        let is_short = self.body.declared_bytes.is_some_and(|declared| declared != received_bytes);
        self.receiving = Receiving::Ended;
        match (is_started, cx.role) {
            (true, _) if !is_short => {
                cx.events.push_back(Event::End { stream: self.id });
                return Ok(());
            }
            (true, _) => self.fail(cx, Code::H3_MESSAGE_ERROR, "less DATA than content-length"),
            (false, Role::Server) => self.fail(cx, Code::H3_REQUEST_INCOMPLETE, "no HEADERS"),
            (false, Role::Client) => self.fail(cx, Code::H3_MESSAGE_ERROR, "no final response"),
        }
        .map(|_over| ())
    }

    /// The insertions that a section waited for have arrived on the encoder stream.
    pub(super) fn unblock(
        &mut self,
        cx: &mut Shared,
        fields: Result<Vec<Field>, qpack::Error>,
    ) -> Result<(), ConnectionError> {
        let held = self.held.take().unwrap_or_default();
        let step = match fields {
            Ok(fields) => self.fields(cx, fields)?,
            Err(qpack::Error::SectionTooLong) => self.fail_too_long(cx)?,
            Err(error) => return Err(error.into()),
        };
        if matches!(step, Step::Over) {
            return Ok(());
        }
        let fin = held.fin;
        for input in held.input {
            self.receive(cx, input, false)?;
        }
        if fin {
            self.receive(cx, Bytes::new(), true)?;
        } else if self.held.is_none() && self.receiving != Receiving::Ended {
            cx.events.push_back(Event::Unblocked { stream: self.id });
        }
        Ok(())
    }

    pub(super) fn receive_reset(
        &mut self,
        cx: &mut Shared,
        code: Code,
    ) -> Result<(), ConnectionError> {
        if self.receiving == Receiving::Ended {
            return Ok(());
        }
        cx.decoder.cancel(self.id.0);
        if self.is_known(cx) {
            let stream = self.id;
            cx.events.push_back(Event::Reset { stream, code });
        } else if self.sending != Sending::Ended {
            self.sending = Sending::Ended;
            cx.reset(self.id, Code::H3_REQUEST_CANCELLED);
        }
        self.held = None;
        self.receiving = Receiving::Ended;
        self.count_cancelled(cx)
    }

    pub(super) fn receive_stop(
        &mut self,
        cx: &mut Shared,
        code: Code,
    ) -> Result<(), ConnectionError> {
        if self.sending == Sending::Ended {
            return Ok(());
        }
        // RFC 9000 §3.5.
        cx.reset(self.id, code);
        self.sending = Sending::Ended;
        if self.is_known(cx) {
            let stream = self.id;
            cx.events.push_back(Event::Stopped { stream, code });
        } else {
            self.stopped = Some(code);
        }
        self.count_cancelled(cx)
    }

    /// The application ends both sides.
    pub(super) fn cancel(&mut self, cx: &mut Shared, code: Code) {
        self.reset(cx, code);
        self.stop(cx, code);
        self.forget();
    }

    /// The application stops sending.
    pub(super) fn reset(&mut self, cx: &mut Shared, code: Code) {
        if self.sending != Sending::Ended {
            cx.reset(self.id, code);
        }
        self.sending = Sending::Ended;
    }

    /// The application stops reading.
    pub(super) fn stop(&mut self, cx: &mut Shared, code: Code) {
        if self.receiving != Receiving::Ended {
            cx.decoder.cancel(self.id.0);
            cx.stop(self.id, code);
        }
        self.held = None;
        self.receiving = Receiving::Ended;
    }

    /// Ends both sides because of the peer's message.
    fn fail(
        &mut self,
        cx: &mut Shared,
        code: Code,
        reason: &'static str,
    ) -> Result<Step, ConnectionError> {
        self.cancel(cx, code);
        cx.events.push_back(Event::Failed { stream: self.id, code, reason });
        self.count_cancelled(cx)?;
        Ok(Step::Over)
    }

    /// A section is longer than we accept: a request is answered with status 431 (RFC 9114 §4.2.2).
    fn fail_too_long(&mut self, cx: &mut Shared) -> Result<Step, ConnectionError> {
        let reason = "the field section is longer than SETTINGS_MAX_FIELD_SECTION_SIZE";
        let is_request = cx.role == Role::Server && self.receiving == Receiving::Headers;
        if !is_request || self.sending != Sending::Headers {
            return self.fail(cx, Code::H3_EXCESSIVE_LOAD, reason);
        }
        let answer = [Line::new(b":status", b"431")];
        if cx.send_section(self.id, &answer).is_ok() {
            self.end_if(cx, true);
        }
        // Not an error code: a client might discard the response because of one (RFC 9114 §4.1).
        self.fail(cx, Code::H3_NO_ERROR, reason)
    }

    fn count_cancelled(&mut self, cx: &mut Shared) -> Result<(), ConnectionError> {
        if std::mem::replace(&mut self.is_cancelled, true) {
            return Ok(());
        }
        cx.request_cancelled()
    }

    fn forget(&mut self) {
        self.held = None;
        self.receiving = Receiving::Ended;
        self.sending = Sending::Ended;
    }
}

impl Held {
    fn push(&mut self, bytes_max: usize, input: Bytes, fin: bool) -> Result<(), ConnectionError> {
        self.fin |= fin;
        self.bytes += input.len();
        // The rest of the call that was blocked is always buffered.
        if self.bytes > bytes_max && !self.input.is_empty() {
            return Err(ConnectionError::new(
                Code::H3_EXCESSIVE_LOAD,
                "too much data after a blocked field section",
            ));
        }
        if !input.is_empty() {
            self.input.push_back(input);
        }
        Ok(())
    }
}

fn kept(cx: &Shared) -> Kept {
    if cx.config.raw_fields { Kept::Own } else { Kept::All }
}

/// The first value of a field; empty if there is none.
fn value_of<'a>(lines: &'a [Line<'_>], name: &[u8]) -> &'a [u8] {
    let line = lines.iter().find(|line| line.name == name);
    line.map_or(&[], |line| &line.value)
}

/// The session that a WebTransport stream names.
pub(super) fn session_id(id: u64) -> Result<StreamId, ConnectionError> {
    if StreamId(id).is_request() {
        Ok(StreamId(id))
    } else {
        let reason = "a session id that is not a request stream";
        Err(ConnectionError::new(Code::H3_ID_ERROR, reason))
    }
}
