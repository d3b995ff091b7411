//! Events of sessions for the application.

use super::config::Direction;
use super::dialect::Dialect;
use crate::{Code, StreamId};
use bytes::Bytes;
use http::{request, response};

/// An event of a session, which is named by the stream of its CONNECT request.
#[derive(Debug)]
pub enum Event {
    /// The peer's SETTINGS have arrived.
    Settings {
        /// `None` if it announces no WebTransport draft that we support: then a client cannot connect.
        dialect: Option<Dialect>,
    },
    /// A server's: a client requests a session. Check its path and `origin`, then [`Sessions::accept`](super::Sessions::accept) or
    /// [`Sessions::reject`](super::Sessions::reject).
    Request {
        /// The session.
        session: StreamId,
        /// The URI and header fields of the request.
        parts: request::Parts,
        /// Sub-protocols that the client offers, the preferred first.
        protocols: Vec<String>,
    },
    /// A client's: the server has accepted.
    Accepted {
        /// The session.
        session: StreamId,
        /// Its status and header fields.
        parts: response::Parts,
        /// The sub-protocol that the server selected.
        protocol: Option<String>,
    },
    /// A client's: the server has refused, by a status that is not 2xx; redirections are not followed. The session has ended.
    Rejected {
        /// The session.
        session: StreamId,
        /// Its status and header fields.
        parts: response::Parts,
    },
    /// The peer has opened a stream. Its later data belongs to the application.
    Stream {
        /// Its session.
        session: StreamId,
        /// The stream.
        stream: StreamId,
        /// Data received so far, without the header.
        data: Bytes,
        /// True if it ends after `data`.
        fin: bool,
    },
    /// A datagram.
    Datagram {
        /// Its session.
        session: StreamId,
        /// Payload.
        data: Bytes,
    },
    /// With flow control: streams can be opened again, after [`Error::Blocked`](super::Error::Blocked).
    StreamsUnblocked {
        /// In which session.
        session: StreamId,
        /// Which kind.
        direction: Direction,
    },
    /// With flow control: bytes can be sent again, after [`Sessions::reserve`](super::Sessions::reserve) granted less than requested.
    DataUnblocked {
        /// In which session.
        session: StreamId,
    },
    /// The peer requests the end of a session, or of all of them (GOAWAY): finish and close it. Once per session.
    Draining {
        /// The session.
        session: StreamId,
    },
    /// The session has ended, not by a local call. All its streams are being reset.
    Closed {
        /// The session.
        session: StreamId,
        /// How.
        ending: Ending,
    },
}

/// How the peer, or its violation, ended a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It closed the session.
    Closed {
        /// The application's code; 0 if it sent none.
        code: u32,
        /// The application's reason, at most 1024 bytes.
        reason: String,
    },
    /// It reset the session's stream, or stopped reading it; `H3_REQUEST_REJECTED` if it did not process the request.
    Reset {
        /// Its HTTP/3 code.
        code: Code,
    },
    /// It violated the protocol: we have reset the session's stream.
    Failed {
        /// The code sent to it.
        code: Code,
        /// What was wrong.
        reason: &'static str,
    },
}
