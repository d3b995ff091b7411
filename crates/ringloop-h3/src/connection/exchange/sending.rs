//! The sending side of a stream: a request, or responses, then a body and trailers.
//!
//! ```text
//! Headers ─ request, final response ─► Body ─ trailers, end ─► Ended
//!    ▲ │ interim response
//!    └─┘
//! ```

use super::super::shared::Shared;
use super::{Exchange, Sending, SentBody, value_of};
use crate::error::StreamError;
use crate::fields;
use crate::frame;
use crate::qpack::Line;
use crate::stream_id::Role;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, response};

impl Exchange {
    pub(in crate::connection) fn send_request(
        &mut self,
        cx: &mut Shared,
        lines: &[Line<'_>],
        end: bool,
    ) -> Result<(), StreamError> {
        // After CONNECT there is a tunnel, not a body (RFC 9110 §9.3.6).
        let sent = SentBody::declared(lines, !self.is_connect)?;
        sent.with(0, end)?;
        cx.send_section(self.id, lines)?;
        self.sent = sent;
        self.sending = Sending::Body;
        self.end_if(cx, end);
        Ok(())
    }

    pub(in crate::connection) fn send_response(
        &mut self,
        cx: &mut Shared,
        parts: &response::Parts,
        end: bool,
    ) -> Result<(), StreamError> {
        self.check_sending(Sending::Headers, "the final response was sent")?;
        if !self.is_known(cx) {
            return Err(StreamError::Unknown);
        }
        let status = parts.status;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(StreamError::Invalid("HTTP/3 has no status 101"));
        }
        let lines = fields::response_lines(parts);
        self.send_response_lines(cx, &lines, status.is_informational(), end)
    }

    fn send_response_lines(
        &mut self,
        cx: &mut Shared,
        lines: &[Line<'_>],
        is_interim: bool,
        end: bool,
    ) -> Result<(), StreamError> {
        if is_interim && end {
            return Err(StreamError::Invalid("an interim response cannot end the message"));
        }
        if is_interim {
            return cx.send_section(self.id, lines);
        }
        let status = value_of(lines, b":status");
        let has_no_content = matches!(status, b"204" | b"304") && !self.is_connect;
        let is_tunnel = self.is_connect && status.starts_with(b"2");
        let is_bodiless = self.is_bodiless || has_no_content;
        // Without content it is the length that a response to GET has (RFC 9110 §8.6).
        let sent = SentBody::declared(lines, !is_bodiless && !is_tunnel)?;
        sent.with(0, end)?;
        cx.send_section(self.id, lines)?;
        self.sent = sent;
        self.is_bodiless = is_bodiless;
        self.sending = Sending::Body;
        self.end_if(cx, end);
        Ok(())
    }

    /// A response or trailers in the caller's own field section.
    pub(in crate::connection) fn send_fields(
        &mut self,
        cx: &mut Shared,
        lines: &[Line<'_>],
        end: bool,
    ) -> Result<(), StreamError> {
        if self.sending != Sending::Headers {
            return self.send_trailer_lines(cx, lines);
        }
        if !self.is_known(cx) {
            return Err(StreamError::Unknown);
        }
        let is_interim = value_of(lines, b":status").starts_with(b"1");
        self.send_response_lines(cx, lines, is_interim, end)
    }

    pub(in crate::connection) fn send_data(
        &mut self,
        cx: &mut Shared,
        data: Bytes,
        end: bool,
    ) -> Result<(), StreamError> {
        self.check_sending(Sending::Body, "no response was sent")?;
        let is_dropped = self.is_bodiless && cx.role == Role::Server;
        self.sent.bytes = self.sent.with(data.len(), end)?;
        if !data.is_empty() && !is_dropped {
            frame::write_head(cx.output.stage(self.id), frame::DATA, data.len());
            cx.output.data(self.id, data);
        }
        self.end_if(cx, end);
        Ok(())
    }

    pub(in crate::connection) fn send_trailers(
        &mut self,
        cx: &mut Shared,
        trailers: &HeaderMap,
    ) -> Result<(), StreamError> {
        self.send_trailer_lines(cx, &fields::trailer_lines(trailers))
    }

    fn send_trailer_lines(
        &mut self,
        cx: &mut Shared,
        lines: &[Line<'_>],
    ) -> Result<(), StreamError> {
        self.check_sending(Sending::Body, "no response was sent")?;
        if self.is_connect && (cx.role == Role::Client || self.body.is_tunnel) {
            return Err(StreamError::Invalid("CONNECT has no trailers"));
        }
        self.sent.with(0, true)?;
        cx.send_section(self.id, lines)?;
        self.end_if(cx, true);
        Ok(())
    }

    fn check_sending(&self, expected: Sending, reason: &'static str) -> Result<(), StreamError> {
        if self.sending == Sending::Ended {
            return Err(StreamError::Closed);
        }
        if self.sending != expected {
            return Err(StreamError::Unexpected(reason));
        }
        Ok(())
    }

    pub(super) fn end_if(&mut self, cx: &mut Shared, end: bool) {
        if end {
            self.sending = Sending::Ended;
            cx.output.finish(self.id);
        }
    }
}

impl SentBody {
    /// A body with the declared length, if that counts.
    fn declared(lines: &[Line<'_>], counts: bool) -> Result<Self, StreamError> {
        let declared_bytes = if counts { fields::content_length_of(lines)? } else { None };
        Ok(Self { declared_bytes, bytes: 0 })
    }

    /// Checks that `len` more bytes, and with `end` the end, fit the declared length; returns the bytes with them.
    fn with(&self, len: usize, end: bool) -> Result<u64, StreamError> {
        let given = self.bytes.saturating_add(len as u64);
        match self.declared_bytes {
            Some(declared) if given > declared => Err(StreamError::BodyTooLong { declared, given }),
            Some(declared) if end && given < declared => {
                Err(StreamError::BodyTooShort { declared, given })
            }
            _ => Ok(given),
        }
    }
}
