//! Who a stream belongs to, by its id.

use std::fmt;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Opened the connection; sends requests.
    Client,
    /// Answers them.
    Server,
}

/// The id of a QUIC stream (RFC 9000 §2.1), at most 2^62 − 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The end that opened it.
    pub const fn initiator(self) -> Role {
        if self.0 & 1 == 0 { Role::Client } else { Role::Server }
    }

    /// True if both ends send on it.
    pub const fn is_bidirectional(self) -> bool {
        self.0 & 2 == 0
    }

    /// True if it may carry a request: bidirectional, and opened by the client.
    pub const fn is_request(self) -> bool {
        self.is_bidirectional() && matches!(self.initiator(), Role::Client)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({})", self.0)
    }
}
