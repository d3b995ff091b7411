//! Adapter to the protocol engine: the only module that names `quinn_proto`.
//!
//! Owns: the engine's types that the crate uses, the mapping of its errors, the TLS session under
//! it ([`session`]), and what QUIC version 2 needs in addition ([`version`]). Called by: `core`,
//! `config`, `tls`. Has no I/O and no state.

pub(crate) mod concluded;
pub(crate) mod congestion;
mod exporter;
pub(crate) mod final_sizes;
mod frames;
pub(crate) mod ids;
pub(crate) mod keys;
mod limits_of;
mod logged;
pub(crate) mod reader;
pub(crate) mod reset_at;
pub(crate) mod session;
#[cfg(any(test, fuzzing))]
pub(crate) mod tamper;
pub(crate) mod unprotected;
pub(crate) mod version;
pub(crate) mod worker;

use crate::error::{ConnectError, ConnectionError};

pub(crate) use quinn_proto::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionHandle, ConnectionId,
    ConnectionIdGenerator, ConnectionStats, DatagramEvent, Dir, EcnCodepoint, Endpoint,
    EndpointConfig, EndpointEvent, Event, FinishError, FrameStats, HashedConnectionIdGenerator,
    IdleTimeout, Incoming, InvalidCid, MtuDiscoveryConfig, NoneTokenLog, NoneTokenStore,
    RandomConnectionIdGenerator, ReadError, ReadableError, SendDatagramError, SendStream,
    ServerConfig, Side, StreamEvent, StreamId, TokenMemoryCache, TokenStore, Transmit,
    TransportConfig, ValidationTokenConfig, VarInt, WriteError,
};

/// A client's first destination id: long and random.
pub(crate) fn first_id() -> ConnectionId {
    RandomConnectionIdGenerator::new(20).generate_cid()
}

/// A number limited to the range of RFC 9000 §16.
pub(crate) fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

impl From<quinn_proto::ConnectionError> for ConnectionError {
    fn from(error: quinn_proto::ConnectionError) -> Self {
        use quinn_proto::ConnectionError as Engine;
        match error {
            Engine::VersionMismatch => Self::VersionMismatch,
            Engine::TransportError(error) => {
                Self::Transport { code: error.code.into(), reason: error.reason }
            }
            Engine::ConnectionClosed(close) => Self::TransportByPeer {
                code: close.error_code.into(),
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            Engine::ApplicationClosed(close) => {
                Self::ClosedByPeer { code: close.error_code.into_inner(), reason: close.reason }
            }
            Engine::Reset => Self::Reset,
            Engine::TimedOut => Self::TimedOut,
            Engine::LocallyClosed => Self::Closed,
            Engine::CidsExhausted => Self::NoConnectionIds,
        }
    }
}

impl From<quinn_proto::ConnectError> for ConnectError {
    fn from(error: quinn_proto::ConnectError) -> Self {
        use quinn_proto::ConnectError as Engine;
        match error {
            Engine::EndpointStopping => Self::EndpointClosed,
            Engine::CidsExhausted => Self::NoConnectionIds,
            Engine::InvalidServerName(name) => Self::InvalidServerName(name),
            Engine::InvalidRemoteAddress(address) => Self::InvalidAddress(address),
            Engine::NoDefaultClientConfig => Self::NoConfig,
            Engine::UnsupportedVersion => Self::UnsupportedVersion,
        }
    }
}
