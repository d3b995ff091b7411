//! What sessions tell the application.

use super::config::Direction;
use super::dialect::Dialect;
use crate::{Code, StreamId};
use bytes::Bytes;
use http::{request, response};

/// What has happened. A session is named by the stream of its CONNECT request.
#[derive(Debug)]
pub enum Event {
    /// The peer's SETTINGS have arrived.
    Settings {
        /// `None` if it has no WebTransport that we speak: a client then cannot connect.
        dialect: Option<Dialect>,
    },
    /// A server's: a client wants a session. Check its path and `origin`, then [`Sessions::accept`](super::Sessions::accept) or
    /// [`Sessions::reject`](super::Sessions::reject).
    Request {
        /// The session.
        session: StreamId,
        /// The URI and header fields of the request.
        parts: request::Parts,
        /// Sub-protocols that the client offers, its favourite first.
        protocols: Vec<String>,
    },
    /// A client's: the server has accepted.
    Accepted {
        /// The session.
        session: StreamId,
        /// Its status and header fields.
        parts: response::Parts,
        /// Which of the offered sub-protocols the server has chosen.
        protocol: Option<String>,
    },
    /// A client's: the server has refused, by a status that is not 2xx; redirections are not followed. The session is over.
    Rejected {
        /// The session.
        session: StreamId,
        /// Its status and header fields.
        parts: response::Parts,
    },
    /// The peer has opened a stream. What arrives on it from now on is the application's.
    Stream {
        /// Of which session.
        session: StreamId,
        /// The stream.
        stream: StreamId,
        /// What has arrived of it, without its header.
        data: Bytes,
        /// True if it ends behind `data`.
        fin: bool,
    },
    /// A datagram.
    Datagram {
        /// Of which session.
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
    /// With flow control: bytes can be sent again, after [`Sessions::reserve`](super::Sessions::reserve) granted less than was wanted.
    DataUnblocked {
        /// In which session.
        session: StreamId,
    },
    /// The peer asks for the end of a session, or of all of them (GOAWAY): finish and close it. Once a session.
    Draining {
        /// The session.
        session: StreamId,
    },
    /// The session has ended, and not by a call of ours. All its streams are being reset.
    Closed {
        /// The session.
        session: StreamId,
        /// How.
        ending: Ending,
    },
}

/// How the peer, or its fault, ended a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It closed the session.
    Closed {
        /// The application's code; 0 if it sent none.
        code: u32,
        /// The application's reason, at most 1024 bytes.
        reason: String,
    },
    /// It reset the session's stream, or stopped reading it; `H3_REQUEST_REJECTED` if it never looked at the request.
    Reset {
        /// Its code of HTTP/3.
        code: Code,
    },
    /// It broke the protocol: we have reset the session's stream.
    Failed {
        /// What it was told.
        code: Code,
        /// What was wrong.
        reason: &'static str,
    },
}
