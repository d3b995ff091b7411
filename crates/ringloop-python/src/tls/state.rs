//! Where a TLS connection stands, towards the peer and towards the user's protocol.
//!
//! ```text
//!  Unwrapped ──connection_made──▶ DoHandshake ──▶ Wrapped ──close(), EOF, close_notify──▶ Flushing ─┐
//!   ▲                                                                                              │
//!   └── connection_lost, abort, failed handshake: from every state ◀── Shutdown ◀──────────────────┘
//!
//!  Init ──connection_made──▶ Made ──eof_received──▶ Eof ──connection_lost──▶ Lost
//!                              └───────────────────connection_lost───────────▲
//! ```
//! The names are asyncio's (`SSLProtocolState`, `AppProtocolState`), because one message shows them.

/// Towards the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No handshake has begun, or all is over.
    Unwrapped,
    DoHandshake,
    /// Bytes may go both ways.
    Wrapped,
    /// What the peer has sent is still delivered before `close_notify` goes out.
    Flushing,
    /// `close_notify` was sent; the peer's is awaited.
    Shutdown,
}

impl State {
    /// Say whether `next` may follow.
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

    /// Say whether the user's bytes go nowhere any more.
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

/// Towards the user's protocol: which of its methods were called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppState {
    Init,
    Made,
    Eof,
    Lost,
}

/// How the user's protocol takes its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiver {
    /// `data_received`.
    Data,
    /// `get_buffer` and `buffer_updated`.
    Buffered,
    /// It is one of ours (TLS over TLS): it takes them without a Python object's method.
    Tls,
}
