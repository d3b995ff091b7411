//! Why a call of the application cannot be carried out.

use crate::StreamError;
use std::fmt;

/// A call of the application that cannot be carried out; it has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no such session, or it has ended.
    UnknownSession,
    /// The session is not in a state for this; says why.
    Unexpected(&'static str),
    /// The peer's SETTINGS have not arrived, or have no WebTransport that we speak.
    NotSupported,
    /// As many sessions as the peer, or [`Config::sessions_max`](super::Config::sessions_max), allows.
    TooManySessions,
    /// Past the peer's limit on streams; [`Event::StreamsUnblocked`](super::Event::StreamsUnblocked) follows.
    Blocked,
    /// An argument cannot be sent; says why.
    Invalid(&'static str),
    /// HTTP/3 cannot carry it out.
    Stream(StreamError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSession => f.write_str("no such session, or it has ended"),
            Self::Unexpected(what) | Self::Invalid(what) => f.write_str(what),
            Self::NotSupported => f.write_str("the peer has not announced WebTransport"),
            Self::TooManySessions => {
                f.write_str("the connection has all sessions that it may have")
            }
            Self::Blocked => f.write_str("the peer allows no more streams in this session yet"),
            Self::Stream(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<StreamError> for Error {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}
