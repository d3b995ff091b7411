//! Events for the application, and output for QUIC.

use crate::error::Code;
use crate::priority::Priority;
use crate::qpack::Field;
use crate::settings::Settings;
use crate::stream_id::StreamId;
use bytes::Bytes;
use http::{HeaderMap, request, response};

/// Output for QUIC, to be sent in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transmit {
    /// Bytes of a stream.
    Stream {
        /// Which one.
        stream: StreamId,
        /// May be empty if `fin` is set.
        data: Bytes,
        /// True if the stream ends after them.
        fin: bool,
    },
    /// `RESET_STREAM`: the sending side ends here.
    Reset {
        /// Of which stream.
        stream: StreamId,
        /// Why.
        code: Code,
    },
    /// `STOP_SENDING`: this stream is no longer read. From now on the caller discards its data instead of passing it to
    /// [`crate::Connection::receive`].
    Stop {
        /// Which stream.
        stream: StreamId,
        /// Why.
        code: Code,
    },
    /// A DATAGRAM frame.
    Datagram(Bytes),
}

/// An event of a connection.
///
/// A message of the peer is `Request`, or any number of `Informational` and a `Response`; then any number of `Data`,
/// at most one `Trailers`, and `End`. `Reset` or `Failed` may end it at any point.
#[derive(Debug)]
pub enum Event {
    /// The peer's SETTINGS have arrived.
    Settings(Settings),
    /// A server's: a request. An extended CONNECT has a [`crate::Protocol`] in its extensions.
    Request {
        /// Its stream.
        stream: StreamId,
        /// Method, URI in absolute form (authority form for CONNECT), header fields.
        parts: request::Parts,
    },
    /// A client's: an interim response (1xx).
    Informational {
        /// Stream of its request.
        stream: StreamId,
        /// Status and header fields.
        parts: response::Parts,
    },
    /// A client's: the final response.
    Response {
        /// Stream of its request.
        stream: StreamId,
        /// Status and header fields.
        parts: response::Parts,
    },
    /// With [`crate::Config::raw_fields`], instead of `Request`, `Informational`, `Response` and `Trailers`: the lines
    /// of the section, checked by the same rules.
    Fields {
        /// Its stream.
        stream: StreamId,
        /// Pseudo-header fields first; duplicates and several cookies stay apart.
        fields: Vec<Field>,
    },
    /// Part of the body; for an extended CONNECT, of its capsules.
    Data {
        /// Its stream.
        stream: StreamId,
        /// A slice of what was received; never empty.
        data: Bytes,
    },
    /// The trailer section.
    Trailers {
        /// Its stream.
        stream: StreamId,
        /// Its fields.
        trailers: HeaderMap,
    },
    /// The message is complete.
    End {
        /// Its stream.
        stream: StreamId,
    },
    /// The peer has reset its sending side; no `End` follows. A server usually responds with
    /// [`crate::Connection::cancel`]. To a client, `H3_REQUEST_REJECTED` says that the request was not processed; after
    /// `GoAway` both sides of the stream have ended.
    Reset {
        /// Which stream.
        stream: StreamId,
        /// Why.
        code: Code,
    },
    /// The peer has stopped reading a stream: the sending side has ended.
    Stopped {
        /// Which stream.
        stream: StreamId,
        /// Why; `H3_NO_ERROR` from a server that needs no more of the request.
        code: Code,
    },
    /// The peer's message is malformed or too long: both sides of the stream have ended, and it is forgotten.
    Failed {
        /// Which stream.
        stream: StreamId,
        /// The code sent to the peer.
        code: Code,
        /// What is wrong.
        reason: &'static str,
    },
    /// A stream for which [`crate::Connection::is_blocked`] was true can be received from again.
    Unblocked {
        /// Which stream.
        stream: StreamId,
    },
    /// An HTTP datagram (RFC 9297 §2.1).
    Datagram {
        /// Its request; may not have arrived yet, or have ended.
        stream: StreamId,
        /// Payload.
        data: Bytes,
    },
    /// The peer is shutting down.
    GoAway {
        /// To a client: requests on this stream and later ones are not processed. To a server: a push id.
        id: u64,
    },
    /// A server's: the client has changed the priority of an open request.
    PriorityUpdate {
        /// Its stream.
        stream: StreamId,
        /// The new one.
        priority: Priority,
    },
    /// A WebTransport stream, which belongs to the caller from now on: do not pass later bytes, its end or its reset to
    /// the connection.
    Raw {
        /// Which stream; bidirectional (signal 0x41) or unidirectional (0x54).
        stream: StreamId,
        /// Stream of the CONNECT request of its session; may not have arrived yet.
        session: StreamId,
        /// Data that arrived after the signal.
        data: Bytes,
        /// True if the stream ends after `data`.
        fin: bool,
    },
}
