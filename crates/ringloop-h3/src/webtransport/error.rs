//! Errors of the application's calls.

use crate::StreamError;
use std::fmt;

/// A call of the application failed, without effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no such session, or it has ended.
    UnknownSession,
    /// The session is not in a state for this; says why.
    Unexpected(&'static str),
    /// The peer's SETTINGS have not arrived, or announce no WebTransport draft that we support.
    NotSupported,
    /// The peer's limit on sessions, or [`Config::sessions_max`](super::Config::sessions_max), is reached.
    TooManySessions,
    /// The peer's limit on streams is reached; [`Event::StreamsUnblocked`](super::Event::StreamsUnblocked) follows.
    Blocked,
    /// An argument cannot be sent; says why.
    Invalid(&'static str),
    /// An error of HTTP/3.
    Stream(StreamError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSession => f.write_str("no such session, or it has ended"),
            Self::Unexpected(what) | Self::Invalid(what) => f.write_str(what),
            Self::NotSupported => f.write_str("the peer has not announced WebTransport"),
            Self::TooManySessions => {
                f.write_str("the connection has its maximum number of sessions")
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
