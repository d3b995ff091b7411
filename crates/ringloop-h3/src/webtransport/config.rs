//! Configuration of a connection's sessions.

use crate::{StreamId, limits};

/// Configuration of a connection's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Sessions at a time, pending or open; at least 1.
    pub sessions_max: usize,
    /// The peer's initial limits in each session. `None`: no flow control but QUIC's, and so one session at a time with
    /// peers of draft 13 and later.
    pub flow_control: Option<Limits>,
    /// True if QUIC supports `RESET_STREAM_AT`: only then are drafts 15 and later announced.
    pub has_reset_stream_at: bool,
    /// Streams that may wait for their session.
    pub early_streams_max: usize,
    /// Datagrams that may wait for their session.
    pub early_datagrams_max: usize,
    /// Bytes of all waiting streams and datagrams.
    pub early_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sessions_max: limits::SESSIONS_MAX,
            flow_control: None,
            has_reset_stream_at: false,
            early_streams_max: limits::EARLY_STREAMS_MAX,
            early_datagrams_max: limits::EARLY_DATAGRAMS_MAX,
            early_bytes_max: limits::EARLY_BYTES_MAX,
        }
    }
}

/// Initial limits of a session, as in SETTINGS: what the other end may open and send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes on all streams of the session, without their headers.
    pub data: u64,
    /// Bidirectional streams.
    pub bidirectional_streams: u64,
    /// Unidirectional streams.
    pub unidirectional_streams: u64,
}

impl Limits {
    pub(super) fn streams(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Bidirectional => self.bidirectional_streams,
            Direction::Unidirectional => self.unidirectional_streams,
        }
    }
}

/// Which ends send on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Both.
    Bidirectional,
    /// The end that opened it.
    Unidirectional,
}

impl Direction {
    pub(super) fn of(stream: StreamId) -> Self {
        if stream.is_bidirectional() { Self::Bidirectional } else { Self::Unidirectional }
    }
}
