//! The peer's unidirectional streams (RFC 9114 §6.2) and the frames of its control stream (§7.2).

use super::exchange::session_id;
use super::exchanges::Exchanges;
use super::shared::Shared;
use crate::error::{Code, ConnectionError};
use crate::event::Event;
use crate::frame::{self, Item, Reader};
use crate::limits::{CONTROL_FRAME_BYTES_MAX, UNTYPED_STREAMS_MAX};
use crate::priority::Priority;
use crate::settings::Settings;
use crate::stream_id::{Role, StreamId};
use crate::varint::{self, Partial};
use bytes::Bytes;
use std::collections::HashMap;

/// Types of streams (RFC 9114 §6.2, RFC 9204 §4.2, draft-ietf-webtrans-http3 §4.2).
pub(super) const CONTROL: u64 = 0x0;
const PUSH: u64 = 0x1;
pub(super) const QPACK_ENCODER: u64 = 0x2;
pub(super) const QPACK_DECODER: u64 = 0x3;
const WEBTRANSPORT: u64 = 0x54;
/// The shortest header of a WebTransport stream: its type takes two bytes, the session's id one or more.
const RAW_HEADER_BYTES_MIN: usize = 3;

/// The peer's unidirectional streams and the state of its control stream.
#[derive(Debug, Default)]
pub(super) struct Peer {
    streams: HashMap<StreamId, UniStream>,
    untyped_count: usize,
    control: Reader,
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    /// Its last GOAWAY.
    pub(super) go_away: Option<u64>,
    push_id_max: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum UniStream {
    Untyped(Partial),
    /// A WebTransport stream whose session id has not arrived.
    Raw(Partial),
    Control,
    Encoder,
    Decoder,
}

impl UniStream {
    fn is_critical(self) -> bool {
        matches!(self, Self::Control | Self::Encoder | Self::Decoder)
    }

    fn is_waiting(self) -> bool {
        matches!(self, Self::Untyped(_) | Self::Raw(_))
    }
}

pub(super) const CLOSED_CRITICAL: ConnectionError =
    ConnectionError::new(Code::H3_CLOSED_CRITICAL_STREAM, "a control or QPACK stream was closed");

impl Peer {
    fn remove(&mut self, stream: StreamId) {
        if self.streams.remove(&stream).is_some_and(UniStream::is_waiting) {
            self.untyped_count -= 1;
        }
    }

    /// A stream type that the peer may open once.
    fn claim(&mut self, stream: StreamId, kind: UniStream) -> Result<(), ConnectionError> {
        let is_claimed = match kind {
            UniStream::Encoder => &mut self.has_encoder,
            UniStream::Decoder => &mut self.has_decoder,
            _ => &mut self.has_control,
        };
        if std::mem::replace(is_claimed, true) {
            let reason = "a second control or QPACK stream";
            return Err(ConnectionError::new(Code::H3_STREAM_CREATION_ERROR, reason));
        }
        self.remove(stream);
        self.streams.insert(stream, kind);
        Ok(())
    }

    /// Takes what has arrived on a unidirectional stream of the peer.
    pub(super) fn receive(
        &mut self,
        shared: &mut Shared,
        exchanges: &mut Exchanges,
        stream: StreamId,
        mut data: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        let kind = match self.streams.get(&stream) {
            Some(kind) => *kind,
            None if self.untyped_count == UNTYPED_STREAMS_MAX => {
                let reason = "too many streams without a type";
                return Err(ConnectionError::new(Code::H3_EXCESSIVE_LOAD, reason));
            }
            None => {
                let kind = UniStream::Untyped(Partial::default());
                self.untyped_count += 1;
                self.streams.insert(stream, kind);
                kind
            }
        };
        let Some(kind) = self.typed(shared, stream, kind, &mut data, fin)? else {
            if fin {
                // A stream may end before its type (RFC 9114 §6.2).
                self.remove(stream);
            }
            return Ok(());
        };
        match kind {
            UniStream::Encoder => {
                shared.decoder.receive(&data)?;
                exchanges.unblock(shared)?;
            }
            UniStream::Decoder => shared.encoder.receive(&data)?,
            _ => self.receive_control(shared, exchanges, data)?,
        }
        if fin { Err(CLOSED_CRITICAL) } else { Ok(()) }
    }

    /// See [`crate::Connection::header_bytes_missing`].
    pub(super) fn header_bytes_missing(&self, stream: StreamId) -> Option<usize> {
        match self.streams.get(&stream) {
            None => Some(RAW_HEADER_BYTES_MIN),
            Some(UniStream::Untyped(partial) | UniStream::Raw(partial)) => Some(partial.missing()),
            Some(_) => None,
        }
    }

    /// See [`crate::Connection::is_reading`].
    pub(super) fn is_reading(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// `RESET_STREAM` of a unidirectional stream of the peer.
    pub(super) fn receive_reset(&mut self, stream: StreamId) -> Result<(), ConnectionError> {
        let kind = self.streams.get(&stream);
        if kind.is_some_and(|kind| kind.is_critical()) {
            return Err(CLOSED_CRITICAL);
        }
        self.remove(stream);
        Ok(())
    }

    /// Reads the type of a stream; `None`: it is not complete, or the stream is not for us.
    fn typed(
        &mut self,
        shared: &mut Shared,
        stream: StreamId,
        mut kind: UniStream,
        data: &mut Bytes,
        fin: bool,
    ) -> Result<Option<UniStream>, ConnectionError> {
        if let UniStream::Untyped(partial) = &mut kind {
            let Some(number) = partial.read(data) else {
                self.streams.insert(stream, kind);
                return Ok(None);
            };
            kind = match number {
                CONTROL => UniStream::Control,
                QPACK_ENCODER => UniStream::Encoder,
                QPACK_DECODER => UniStream::Decoder,
                WEBTRANSPORT if shared.config.raw_streams => UniStream::Raw(Partial::default()),
                PUSH => return Err(pushed(shared.role)),
                _ => {
                    self.remove(stream);
                    shared.idle_frame()?;
                    shared.stop(stream, Code::H3_STREAM_CREATION_ERROR);
                    return Ok(None);
                }
            };
            if kind.is_critical() {
                self.claim(stream, kind)?;
            }
        }
        let UniStream::Raw(partial) = &mut kind else {
            return Ok(Some(kind));
        };
        let Some(session) = partial.read(data) else {
            self.streams.insert(stream, kind);
            return Ok(None);
        };
        self.remove(stream);
        shared.events.push_back(Event::Raw {
            stream,
            session: session_id(session)?,
            data: std::mem::take(data),
            fin,
        });
        Ok(None)
    }

    fn receive_control(
        &mut self,
        shared: &mut Shared,
        exchanges: &mut Exchanges,
        mut data: Bytes,
    ) -> Result<(), ConnectionError> {
        while let Some(item) = self.control.next(&mut data) {
            match item {
                Item::Head { kind, len } => self.control_head(shared, kind, len)?,
                Item::Whole { kind, payload } => {
                    self.control_frame(shared, exchanges, kind, payload)?;
                }
                Item::Part(_) => {}
            }
        }
        Ok(())
    }

    fn control_head(
        &mut self,
        shared: &mut Shared,
        kind: u64,
        len: u64,
    ) -> Result<(), ConnectionError> {
        let unexpected = |reason| Err(ConnectionError::new(Code::H3_FRAME_UNEXPECTED, reason));
        let has_settings = shared.peer_settings.is_some();
        match (kind, shared.role) {
            (frame::SETTINGS, _) if has_settings => return unexpected("SETTINGS twice"),
            (frame::SETTINGS, _) => {}
            _ if !has_settings => {
                return Err(ConnectionError::new(
                    Code::H3_MISSING_SETTINGS,
                    "the control stream does not begin with SETTINGS",
                ));
            }
            (frame::DATA | frame::HEADERS | frame::PUSH_PROMISE, _) => {
                return unexpected("a request frame on the control stream");
            }
            (
                frame::MAX_PUSH_ID
                | frame::PRIORITY_UPDATE_OF_REQUEST
                | frame::PRIORITY_UPDATE_OF_PUSH,
                Role::Client,
            ) => return unexpected("a frame that only clients send"),
            _ if frame::is_http2(kind) => return unexpected("an HTTP/2 frame"),
            (frame::GOAWAY | frame::CANCEL_PUSH | frame::MAX_PUSH_ID, _) => {
                shared.idle_frame()?;
                if len > 8 {
                    let reason = "a frame of one integer is too long";
                    return Err(ConnectionError::new(Code::H3_FRAME_ERROR, reason));
                }
            }
            (frame::WT_STREAM, _) if shared.config.raw_streams => {
                let reason = "WT_STREAM on the control stream";
                return Err(ConnectionError::new(Code::H3_FRAME_ERROR, reason));
            }
            (frame::PRIORITY_UPDATE_OF_REQUEST | frame::PRIORITY_UPDATE_OF_PUSH, _) => {
                shared.idle_frame()?;
            }
            // Unknown: skipped (RFC 9114 §9).
            _ => return shared.idle_frame(),
        }
        if len > CONTROL_FRAME_BYTES_MAX {
            let reason = "a frame on the control stream is too long";
            return Err(ConnectionError::new(Code::H3_EXCESSIVE_LOAD, reason));
        }
        self.control.gather(kind);
        Ok(())
    }

    fn control_frame(
        &mut self,
        shared: &mut Shared,
        exchanges: &mut Exchanges,
        kind: u64,
        payload: Bytes,
    ) -> Result<(), ConnectionError> {
        match kind {
            frame::SETTINGS => take_settings(shared, &payload),
            frame::GOAWAY => self.take_go_away(shared, exchanges, frame::read_integer(&payload)?),
            // No push was promised, or is allowed (RFC 9114 §7.2.3).
            frame::CANCEL_PUSH => {
                frame::read_integer(&payload).and(Err(id_error("CANCEL_PUSH of an unknown push")))
            }
            frame::MAX_PUSH_ID => {
                let id = frame::read_integer(&payload)?;
                if self.push_id_max.is_some_and(|before| id < before) {
                    return Err(id_error("MAX_PUSH_ID is reduced"));
                }
                self.push_id_max = Some(id);
                Ok(())
            }
            // No push was promised (RFC 9218 §7.2).
            frame::PRIORITY_UPDATE_OF_PUSH => Err(id_error("a priority for an unknown push")),
            _ => take_priority(shared, exchanges, &payload),
        }
    }

    /// RFC 9114 §5.2, §7.2.6.
    fn take_go_away(
        &mut self,
        shared: &mut Shared,
        exchanges: &mut Exchanges,
        id: u64,
    ) -> Result<(), ConnectionError> {
        if shared.role == Role::Client && !StreamId(id).is_request() {
            return Err(id_error("GOAWAY with an id that is not a request stream"));
        }
        if self.go_away.is_some_and(|before| id > before) {
            return Err(id_error("GOAWAY with a larger id than before"));
        }
        self.go_away = Some(id);
        shared.events.push_back(Event::GoAway { id });
        if shared.role == Role::Client {
            exchanges.abandon_from(shared, StreamId(id));
        }
        Ok(())
    }
}

fn id_error(reason: &'static str) -> ConnectionError {
    ConnectionError::new(Code::H3_ID_ERROR, reason)
}

/// A push stream: a server's is beyond the push ids that we have allowed, which are none (RFC 9114 §4.6).
fn pushed(role: Role) -> ConnectionError {
    match role {
        Role::Client => ConnectionError::new(Code::H3_ID_ERROR, "no push is allowed"),
        Role::Server => ConnectionError::new(
            Code::H3_STREAM_CREATION_ERROR,
            "a client has opened a push stream",
        ),
    }
}

fn take_settings(shared: &mut Shared, payload: &[u8]) -> Result<(), ConnectionError> {
    let settings = Settings::read(payload)?;
    let remembered = shared.config.remembered.as_ref();
    if let Some(remembered) = remembered {
        settings.check_remembered(remembered)?;
    }
    // An encoder that was used in 0-RTT already has its table.
    if remembered.is_none_or(|remembered| remembered.qpack_table_bytes_max == 0) {
        shared
            .encoder
            .set_peer_limits(settings.qpack_table_bytes_max, settings.qpack_blocked_streams_max);
    }
    let event = Event::Settings(settings.clone());
    shared.peer_settings = Some(settings);
    shared.events.push_back(event);
    Ok(())
}

/// RFC 9218 §7.2.
fn take_priority(
    shared: &mut Shared,
    exchanges: &mut Exchanges,
    payload: &[u8],
) -> Result<(), ConnectionError> {
    let mut value = payload;
    let Some(id) = varint::read(&mut value) else {
        let reason = "PRIORITY_UPDATE is truncated";
        return Err(ConnectionError::new(Code::H3_FRAME_ERROR, reason));
    };
    let stream = StreamId(id);
    if !stream.is_request() {
        return Err(id_error("a priority for a stream that is not a request"));
    }
    exchanges.prioritise(shared, stream, Priority::parse(value));
    Ok(())
}
