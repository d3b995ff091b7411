//! The state of a connection, of either role.

use crate::config::{Config, LocalStreams};
use crate::error::{Code, ConnectionError, StreamError};
use crate::event::{Event, Transmit};
use crate::priority::Priority;
use crate::settings::Settings;
use crate::stream_id::{Role, StreamId};
use bytes::Bytes;
use http::{HeaderMap, request, response};
use std::collections::VecDeque;

/// Every HTTP/3 stream of a QUIC connection; owns no QUIC stream.
///
/// After each call the caller drains [`Connection::poll_event`] and [`Connection::poll_transmit`].
#[derive(Debug)]
#[expect(dead_code, reason = "the bodies follow")]
pub struct Connection {
    role: Role,
    config: Config,
    local: LocalStreams,
    events: VecDeque<Event>,
    transmits: VecDeque<Transmit>,
}

#[expect(unused_variables, reason = "the bodies follow")]
impl Connection {
    /// A connection whose three unidirectional streams the caller has opened.
    pub fn new(role: Role, config: Config, local: LocalStreams) -> Self {
        Self {
            role,
            config,
            local,
            events: VecDeque::new(),
            transmits: VecDeque::new(),
        }
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The peer's SETTINGS; `None` until they arrive (those of 0-RTT are not meant).
    pub fn peer_settings(&self) -> Option<&Settings> {
        None
    }

    /// Takes what has arrived on a stream of the peer, or on a request stream.
    ///
    /// Not for a stream while [`Connection::is_blocked`] is true for it, nor after a [`Transmit::Stop`] or [`Event::Raw`] of
    /// it, nor for one whose body cannot be taken now: that is the back-pressure.
    ///
    /// # Errors
    /// The peer breaks the protocol: close QUIC with this code. Later calls return the same.
    pub fn receive(
        &mut self,
        stream: StreamId,
        data: Bytes,
        fin: bool,
    ) -> Result<(), ConnectionError> {
        Ok(())
    }

    /// Takes `RESET_STREAM`.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_reset(&mut self, stream: StreamId, code: Code) -> Result<(), ConnectionError> {
        Ok(())
    }

    /// Takes `STOP_SENDING`.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_stop(&mut self, stream: StreamId, code: Code) -> Result<(), ConnectionError> {
        Ok(())
    }

    /// Takes a DATAGRAM frame.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn receive_datagram(&mut self, datagram: Bytes) -> Result<(), ConnectionError> {
        Ok(())
    }

    /// True if a stream waits for the peer's encoder stream: deliver no more of it until [`Event::Unblocked`].
    pub fn is_blocked(&self, stream: StreamId) -> bool {
        false
    }

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
        Ok(())
    }

    /// Sends a response: any number of interim ones (1xx), then the final one.
    pub fn send_response(
        &mut self,
        stream: StreamId,
        parts: &response::Parts,
        end: bool,
    ) -> Result<(), StreamError> {
        Ok(())
    }

    /// Sends part of the body, which is not copied; `end` if it is the last.
    pub fn send_data(
        &mut self,
        stream: StreamId,
        data: Bytes,
        end: bool,
    ) -> Result<(), StreamError> {
        Ok(())
    }

    /// Sends trailers; they end the message.
    pub fn send_trailers(
        &mut self,
        stream: StreamId,
        trailers: &HeaderMap,
    ) -> Result<(), StreamError> {
        Ok(())
    }

    /// Sends an HTTP datagram for an open request. Both ends have to have enabled them.
    pub fn send_datagram(&mut self, stream: StreamId, data: Bytes) -> Result<(), StreamError> {
        Ok(())
    }

    /// A client's: changes the priority of a request.
    pub fn send_priority(
        &mut self,
        stream: StreamId,
        priority: Priority,
    ) -> Result<(), StreamError> {
        Ok(())
    }

    /// Ends both sides of a request stream, which is forgotten. `H3_REQUEST_CANCELLED` is usual, `H3_REQUEST_REJECTED`
    /// a server's for a request that it has not begun to process.
    pub fn cancel(&mut self, stream: StreamId, code: Code) -> Result<(), StreamError> {
        Ok(())
    }

    /// Reads no more of a message, such as the body of a request that was answered (`H3_NO_ERROR`).
    pub fn stop(&mut self, stream: StreamId, code: Code) -> Result<(), StreamError> {
        Ok(())
    }

    /// Announces a shutdown: requests are still taken for a while (RFC 9114 §5.2). Call [`Connection::go_away`] one round
    /// trip later.
    pub fn announce_go_away(&mut self) {}

    /// Takes no requests beyond those that have arrived: later ones are reset with `H3_REQUEST_REJECTED`.
    pub fn go_away(&mut self) {}

    /// The number of open request streams; after GOAWAY and at 0 the connection can be closed with `H3_NO_ERROR`.
    pub fn request_count(&self) -> usize {
        0
    }

    /// The priority of an open request: of its last `PRIORITY_UPDATE`, or of its `priority` field.
    pub fn priority(&self, stream: StreamId) -> Option<Priority> {
        None
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes what is to be sent next.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }
}
