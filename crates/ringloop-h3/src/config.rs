//! Configuration of a connection.

use crate::limits;
use crate::settings::Settings;
use crate::stream_id::StreamId;

/// Limits and extensions of this end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// SETTINGS to send. [`Settings::field_section_bytes_max`] is enforced; `None` there means
    /// [`limits::FIELD_SECTION_BYTES_MAX`].
    pub settings: Settings,
    /// Fields of a section, pseudo-header fields included; more are refused like a section that is too long.
    pub fields_max: usize,
    /// WebTransport streams are returned as [`crate::Event::Raw`]; otherwise their signals are unknown types.
    pub raw_streams: bool,
    /// Field sections are returned as [`crate::Event::Fields`], checked by the same rules: every line unchanged and in
    /// order.
    pub raw_fields: bool,
    /// Bytes after a blocked field section that are buffered if the caller delivers them nevertheless; beyond it the
    /// connection is closed.
    pub blocked_bytes_max: usize,
    /// Requests that a client may cancel in excess of answered ones, before its connection is closed with
    /// `H3_EXCESSIVE_LOAD`.
    pub resets_max: u32,
    /// Frames without effect that a peer may send beyond [`limits::IDLE_FRAMES_PER_MESSAGE`] per message, before its
    /// connection is closed with `H3_EXCESSIVE_LOAD`.
    pub idle_frames_max: u32,
    /// For a client that sends 0-RTT: the server's settings of the earlier connection. If the server rejects 0-RTT, all
    /// its streams are reset: make a new [`crate::Connection`] without these settings.
    pub remembered: Option<Settings>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings {
                field_section_bytes_max: Some(limits::FIELD_SECTION_BYTES_MAX),
                qpack_table_bytes_max: limits::TABLE_BYTES_MAX,
                qpack_blocked_streams_max: limits::BLOCKED_STREAMS_MAX,
                ..Settings::default()
            },
            fields_max: limits::FIELDS_MAX,
            raw_streams: false,
            raw_fields: false,
            blocked_bytes_max: limits::BLOCKED_BYTES_MAX,
            resets_max: limits::RESETS_MAX,
            idle_frames_max: limits::IDLE_FRAMES_MAX,
            remembered: None,
        }
    }
}

/// The unidirectional streams that the caller has opened for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalStreams {
    /// Carries SETTINGS, GOAWAY and priorities (RFC 9114 §6.2.1).
    pub control: StreamId,
    /// Carries insertions into the peer's dynamic table (RFC 9204 §4.2).
    pub encoder: StreamId,
    /// Carries acknowledgements of the peer's insertions (RFC 9204 §4.2).
    pub decoder: StreamId,
}
