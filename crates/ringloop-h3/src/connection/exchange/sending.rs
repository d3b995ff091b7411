//! The sending side of a stream: a request, or responses, then a body and trailers.
//!
//! ```text
//! Headers ─ request, final response ─► Body ─ trailers, end ─► Ended
//!    ▲ │ interim response
//!    └─┘
//! ```

use super::super::shared::Shared;
use super::{Exchange, Sending, value_of};
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
        cx.send_section(self.id, lines)?;
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
        cx.send_section(self.id, lines)?;
        if !is_interim {
            let has_no_content = matches!(value_of(lines, b":status"), b"204" | b"304");
            self.is_bodiless |= has_no_content && !self.is_connect;
            self.sending = Sending::Body;
            self.end_if(cx, end);
        }
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
