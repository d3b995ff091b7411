//! States of a TLS connection, towards the peer and towards the application's protocol.
//!
//! ```text
//!  Unwrapped ──connection_made──▶ DoHandshake ──▶ Wrapped ──close(), EOF, close_notify──▶ Flushing ─┐
//!   ▲                                                                                              │
//!   └── connection_lost, abort, failed handshake: from every state ◀── Shutdown ◀──────────────────┘
//!
//!  Init ──connection_made──▶ Made ──eof_received──▶ Eof ──connection_lost──▶ Lost
//!                              └───────────────────connection_lost───────────▲
//! ```
//! The names are asyncio's (`SSLProtocolState`, `AppProtocolState`), because an error message shows
//! them.

/// Towards the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No handshake has started, or the connection has ended.
    Unwrapped,
    DoHandshake,
    /// Data may be sent and received.
    Wrapped,
    /// The peer's data is still delivered before `close_notify` is sent.
    Flushing,
    /// `close_notify` was sent; the peer's is awaited.
    Shutdown,
}

impl State {
    /// Whether `next` may follow.
    pub fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (_, Self::Unwrapped)
                | (Self::Unwrapped, Self::DoHandshake)
                | (Self::DoHandshake, Self::Wrapped)
                | (Self::Wrapped, Self::Flushing)
                | (Self::Flushing, Self::Shutdown)
        )
    }

    /// Whether the application's bytes are dropped.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Flushing | Self::Shutdown | Self::Unwrapped)
    }

    /// asyncio's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unwrapped => "SSLProtocolState.UNWRAPPED",
            Self::DoHandshake => "SSLProtocolState.DO_HANDSHAKE",
            Self::Wrapped => "SSLProtocolState.WRAPPED",
            Self::Flushing => "SSLProtocolState.FLUSHING",
            Self::Shutdown => "SSLProtocolState.SHUTDOWN",
        }
    }
}

/// Towards the application's protocol: which of its methods were called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppState {
    Init,
    Made,
    Eof,
    Lost,
}

/// How the application's protocol receives bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiver {
    /// `data_received`.
    Data,
    /// `get_buffer` and `buffer_updated`.
    Buffered,
    /// One of our own (TLS over TLS): takes them without a Python method call.
    Tls,
}
