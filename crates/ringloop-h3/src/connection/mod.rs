//! The state of a connection, of either role.
//!
//! Owns: the state of every HTTP/3 stream ([`Exchange`], `Peer`), QPACK's encoder and decoder, and the queues of events
//! and of output for QUIC. Called by: the owner of the QUIC connection, and `webtransport`, on top of it.
//!
//! # Memory
//! Idle, about 2 KiB and both QPACK tables (at most [`crate::limits::TABLE_BYTES_MAX`] each by default). An open request
//! takes some 300 bytes, and while its fields arrive, those (at most `SETTINGS_MAX_FIELD_SECTION_SIZE`). Events and
//! output are bounded by the input of one call, as the caller drains both after each.

mod exchange;
mod exchanges;
mod output;
mod peer;
mod shared;

use self::exchange::Exchange;
use self::exchanges::Exchanges;
use self::peer::Peer;
use self::shared::Shared;
use crate::config::{Config, LocalStreams};
use crate::error::{Code, ConnectionError, StreamError};
use crate::event::{Event, Transmit};
use crate::fields;
use crate::frame;
use crate::priority::Priority;
use crate::qpack::Line;
use crate::settings::Settings;
use crate::stream_id::{Role, StreamId};
use crate::varint;
use bytes::{BufMut, Bytes};
use http::{HeaderMap, request, response};

/// Every HTTP/3 stream of a QUIC connection; owns no QUIC stream.
///
/// After each call the caller drains [`Connection::poll_event`] and [`Connection::poll_transmit`]. Ignore a [`Transmit`]
/// for a stream that QUIC no longer has.
#[derive(Debug)]
pub struct Connection {
    shared: Shared,
    peer: Peer,
    exchanges: Exchanges,
    failed: Option<ConnectionError>,
}

impl Connection {
    /// Creates a connection whose three unidirectional streams the caller has opened.
    pub fn new(role: Role, config: Config, local: LocalStreams) -> Self {
        let mut shared = Shared::new(role, config, local);
        let mut payload = Vec::new();
        shared.config.settings.write(&mut payload);
        for (stream, kind) in [
            (local.control, peer::CONTROL),
            (local.encoder, peer::QPACK_ENCODER),
            (local.decoder, peer::QPACK_DECODER),
        ] {
            let out = shared.output.stage(stream);
            varint::write(out, kind);
            if kind == peer::CONTROL {
                frame::write_head(out, frame::SETTINGS, payload.len());
                out.put_slice(&payload);
            }
        }
        Self { shared, peer: Peer::default(), exchanges: Exchanges::default(), failed: None }
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.shared.role
    }

    /// The limits and extensions of this end.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The peer's SETTINGS; `None` until they arrive (remembered 0-RTT settings do not count).
    pub fn peer_settings(&self) -> Option<&Settings> {
        self.shared.peer_settings.as_ref()
    }

    // --- from QUIC ------------------------------------------------------------------------------

    /// Takes what has arrived on a stream of the peer, or on a request stream.
    ///
    /// Do not call it for a stream while [`Connection::is_blocked`] is true for it, after a [`Transmit::Stop`] or
    /// [`Event::Raw`] of it, or while the application cannot accept its body: that is the back-pressure.
    ///
    /// # Errors
    /// The peer breaks the protocol: close QUIC with this code. Later calls return the same.
    pub fn receive(
        &mut self,
        stream: StreamId,
        data: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        self.unless_failed(|Self { shared, peer, exchanges, .. }| {
            if stream.is_bidirectional() {
                exchanges.receive(shared, stream, data, fin)
            } else if stream.initiator() == shared.role {
                let reason = "data was delivered for a stream on which the peer cannot send";
                Err(ConnectionError::new(Code::H3_INTERNAL_ERROR, reason))
            } else {
                peer.receive(shared, exchanges, stream, data, fin)
            }
        })
    }

    /// Bytes that the header of a unidirectional stream of the peer still needs at least; `None` once it is complete.
    ///
    /// A caller that reads no more than that at a time leaves everything after the header to QUIC: neither bytes nor the
    /// end are read before the WebTransport application wants them, and the peer gets no credit for either.
    pub fn header_bytes_missing(&self, stream: StreamId) -> Option<usize> {
        self.peer.header_bytes_missing(stream)
    }

    /// Whether a stream is being received. False before its first bytes were delivered, and once no more must be
    /// delivered: a [`Transmit::Stop`] or an [`Event::Raw`] of it is pending, or it has ended.
    pub fn is_reading(&self, stream: StreamId) -> bool {
        if stream.is_bidirectional() {
            self.exchanges.get(stream).is_some()
        } else {
            self.peer.is_reading(stream)
        }
    }

    /// Takes `RESET_STREAM`.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_reset(&mut self, stream: StreamId, code: Code) -> Result<(), ConnectionError> {
        self.unless_failed(|Self { shared, peer, exchanges, .. }| {
            if stream.is_bidirectional() {
                exchanges.receive_reset(shared, stream, code)
            } else {
                peer.receive_reset(stream)
            }
        })
    }

    /// Takes `STOP_SENDING`. Ignored for a stream of which nothing has arrived: QUIC refuses writes to it.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_stop(&mut self, stream: StreamId, code: Code) -> Result<(), ConnectionError> {
        self.unless_failed(|Self { shared, exchanges, .. }| {
            let local = &shared.local;
            if [local.control, local.encoder, local.decoder].contains(&stream) {
                return Err(peer::CLOSED_CRITICAL);
            }
            exchanges.receive_stop(shared, stream, code)
        })
    }

    /// Takes a DATAGRAM frame. Without [`Settings::datagrams`] in our settings, it is dropped.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_datagram(&mut self, datagram: Bytes) -> Result<(), ConnectionError> {
        self.unless_failed(|connection| {
            if !connection.shared.config.settings.datagrams {
                return Ok(());
            }
            let mut rest = &datagram[..];
            // RFC 9297 §2.1: a quarter of the id of a request stream.
            let quarter = varint::read(&mut rest).filter(|quarter| *quarter <= varint::MAX / 4);
            let quarter = quarter.ok_or(ConnectionError::new(
                Code::H3_DATAGRAM_ERROR,
                "a datagram without a request stream",
            ))?;
            let event =
                Event::Datagram { stream: StreamId(quarter * 4), data: datagram.slice_ref(rest) };
            connection.shared.events.push_back(event);
            Ok(())
        })
    }

    /// True if a stream waits for the peer's encoder stream: deliver no more of it until [`Event::Unblocked`].
    pub fn is_blocked(&self, stream: StreamId) -> bool {
        self.exchanges.get(stream).is_some_and(Exchange::is_blocked)
    }

    // --- from the application -------------------------------------------------------------------

    /// Sends a request on a bidirectional stream that the caller has opened; `end` if it has no body.
    ///
    /// Fields that HTTP/3 does not have (`connection`, `transfer-encoding` …) are left out. An extended CONNECT has a
    /// [`crate::Protocol`] in its extensions.
    pub fn send_request(
        &mut self,
        stream: StreamId,
        parts: &request::Parts,
        end: bool,
    ) -> Result<(), StreamError> {
        self.check_request(stream)?;
        let is_extended = parts.extensions.get::<fields::Protocol>().is_some();
        let settings = self.shared.known_settings();
        if is_extended && !settings.is_some_and(|settings| settings.extended_connect) {
            return Err(StreamError::NotSupported("extended CONNECT"));
        }
        let lines = fields::request_lines(parts)?;
        let exchange = Exchange::outgoing(stream, parts);
        let shared = &mut self.shared;
        self.exchanges.open(exchange, stream, |exchange| exchange.send_request(shared, &lines, end))
    }

    /// Sends a request with the caller's own field section: no line is checked, removed or moved.
    pub fn send_request_fields(
        &mut self,
        stream: StreamId,
        lines: &[Line<'_>],
        end: bool,
    ) -> Result<(), StreamError> {
        self.check_request(stream)?;
        let exchange = Exchange::outgoing_lines(stream, lines);
        let shared = &mut self.shared;
        self.exchanges.open(exchange, stream, |exchange| exchange.send_request(shared, lines, end))
    }

    /// Sends a further field section of the caller: a server's interim responses (`:status` is 1xx) and its final one;
    /// after that, or after a request, trailers, which end the message regardless of `end`.
    pub fn send_fields(
        &mut self,
        stream: StreamId,
        lines: &[Line<'_>],
        end: bool,
    ) -> Result<(), StreamError> {
        self.send(stream, |exchange, shared| exchange.send_fields(shared, lines, end))
    }

    /// Sends a response: any number of interim ones (1xx), then the final one.
    pub fn send_response(
        &mut self,
        stream: StreamId,
        parts: &response::Parts,
        end: bool,
    ) -> Result<(), StreamError> {
        if self.shared.role == Role::Client {
            return Err(StreamError::Unexpected("a client sends no responses"));
        }
        self.send(stream, |exchange, shared| exchange.send_response(shared, parts, end))
    }

    /// Sends part of the body, which is not copied unless it is short; `end` if it is the last. A response to
    /// HEAD, or with status 204 or 304, has no content (RFC 9110 §6.4.1): `data` is dropped.
    pub fn send_data(
        &mut self,
        stream: StreamId,
        data: Bytes,
        end: bool,
    ) -> Result<(), StreamError> {
        self.send(stream, |exchange, shared| exchange.send_data(shared, data, end))
    }

    /// Sends trailers; they end the message.
    pub fn send_trailers(
        &mut self,
        stream: StreamId,
        trailers: &HeaderMap,
    ) -> Result<(), StreamError> {
        self.send(stream, |exchange, shared| exchange.send_trailers(shared, trailers))
    }

    /// Sends an HTTP datagram for an open request. Both ends must have enabled them.
    pub fn send_datagram(&mut self, stream: StreamId, data: Bytes) -> Result<(), StreamError> {
        let shared = &mut self.shared;
        let settings = shared.known_settings();
        if !settings.is_some_and(|settings| settings.datagrams) || !shared.config.settings.datagrams
        {
            return Err(StreamError::NotSupported("datagrams"));
        }
        self.exchanges.get(stream).ok_or(StreamError::Unknown)?;
        let quarter = stream.0 / 4;
        let mut datagram = Vec::with_capacity(varint::len(quarter) + data.len());
        varint::write(&mut datagram, quarter);
        datagram.extend_from_slice(&data);
        shared.output.push(Transmit::Datagram(datagram.into()));
        Ok(())
    }

    /// Changes the priority of a client's request.
    pub fn send_priority(
        &mut self,
        stream: StreamId,
        priority: Priority,
    ) -> Result<(), StreamError> {
        if self.shared.role == Role::Server {
            return Err(StreamError::Unexpected("a server sends no priorities"));
        }
        self.send(stream, |exchange, _| {
            exchange.priority = priority;
            Ok(())
        })?;
        let value = priority.to_string();
        self.shared.send_control(|out| {
            let len = varint::len(stream.0) + value.len();
            frame::write_head(out, frame::PRIORITY_UPDATE_OF_REQUEST, len);
            varint::write(out, stream.0);
            out.put_slice(value.as_bytes());
        });
        Ok(())
    }

    /// Ends both sides of a request stream, and forgets it. The usual code is `H3_REQUEST_CANCELLED`; a server uses
    /// `H3_REQUEST_REJECTED` for a request that it has not begun to process.
    pub fn cancel(&mut self, stream: StreamId, code: Code) -> Result<(), StreamError> {
        self.send(stream, |exchange, shared| {
            exchange.cancel(shared, code);
            Ok(())
        })
    }

    /// Stops reading a message, such as the body of a request that was answered (`H3_NO_ERROR`).
    pub fn stop(&mut self, stream: StreamId, code: Code) -> Result<(), StreamError> {
        self.send(stream, |exchange, shared| {
            exchange.stop(shared, code);
            Ok(())
        })
    }

    /// Stops sending a message, and still reads the peer's: for a response that failed half-way (`H3_INTERNAL_ERROR`).
    pub fn reset(&mut self, stream: StreamId, code: Code) -> Result<(), StreamError> {
        self.send(stream, |exchange, shared| {
            exchange.reset(shared, code);
            Ok(())
        })
    }

    /// Announces a shutdown: requests are still accepted for a while (RFC 9114 §5.2). Call [`Connection::go_away`] one
    /// round trip later.
    pub fn announce_go_away(&mut self) {
        // The largest id of a request stream. A client's GOAWAY limits pushes, of which there are none.
        let largest = varint::MAX - 3;
        self.send_go_away(match self.shared.role {
            Role::Server => largest,
            Role::Client => 0,
        });
    }

    /// Accepts no further requests: later ones are reset with `H3_REQUEST_REJECTED`.
    pub fn go_away(&mut self) {
        self.send_go_away(self.shared.requests_end);
    }

    /// The number of open request streams. After GOAWAY, close the connection with `H3_NO_ERROR` once it is 0.
    pub fn request_count(&self) -> usize {
        self.exchanges.count()
    }

    /// The priority of an open request: of its last `PRIORITY_UPDATE`, or of its `priority` field.
    pub fn priority(&self, stream: StreamId) -> Option<Priority> {
        self.exchanges.get(stream).map(|exchange| exchange.priority)
    }

    // --- output ---------------------------------------------------------------------------------

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// Takes what is to be sent next.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let output = &mut self.shared.output;
        output.pop().or_else(|| {
            self.shared.send_decoder_instructions();
            self.shared.output.pop()
        })
    }

    // --- internal -------------------------------------------------------------------------------

    fn unless_failed(
        &mut self,
        receive: impl FnOnce(&mut Self) -> Result<(), ConnectionError>,
    ) -> Result<(), ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = receive(self);
        self.failed = result.err();
        result
    }

    fn send(
        &mut self,
        stream: StreamId,
        send: impl FnOnce(&mut Exchange, &mut Shared) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        self.exchanges.with(&mut self.shared, stream, send)
    }

    /// Whether a request may be sent on a stream.
    fn check_request(&self, stream: StreamId) -> Result<(), StreamError> {
        if self.shared.role == Role::Server {
            return Err(StreamError::Unexpected("a server sends no requests"));
        }
        if !stream.is_request() {
            return Err(StreamError::Unexpected("a request needs a bidirectional stream"));
        }
        if self.peer.go_away.is_some_and(|end| stream.0 >= end) {
            return Err(StreamError::GoingAway);
        }
        Ok(())
    }

    fn send_go_away(&mut self, id: u64) {
        if self.shared.go_away_sent.is_some_and(|before| before <= id) {
            return;
        }
        self.shared.go_away_sent = Some(id);
        self.shared.send_control(|out| frame::write_integer(out, frame::GOAWAY, id));
    }
}
