//! SETTINGS (RFC 9114 §7.2.4), of either end.

use crate::error::{Code, ConnectionError};
use crate::limits::SETTINGS_MAX;
use crate::varint;
use bytes::BufMut;

/// `SETTINGS_QPACK_MAX_TABLE_CAPACITY` (RFC 9204 §5).
pub const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
/// `SETTINGS_MAX_FIELD_SECTION_SIZE` (RFC 9114 §7.2.4.1).
pub const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
/// `SETTINGS_QPACK_BLOCKED_STREAMS` (RFC 9204 §5).
pub const QPACK_BLOCKED_STREAMS: u64 = 0x7;
/// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 9220 §3).
pub const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
/// `SETTINGS_H3_DATAGRAM` (RFC 9297 §2.1.1).
pub const H3_DATAGRAM: u64 = 0x33;

/// The settings of one end. The defaults are those of empty SETTINGS (RFC 9114).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a field section, counted as in RFC 9114 §4.2.2 (32 more per field); `None` is unlimited.
    pub field_section_bytes_max: Option<u64>,
    /// Bytes of the dynamic table that the other end's encoder may use.
    pub qpack_table_bytes_max: u64,
    /// Streams that may wait for the encoder stream.
    pub qpack_blocked_streams_max: u64,
    /// Servers: CONNECT may have a `:protocol` (RFC 9220).
    pub extended_connect: bool,
    /// It accepts HTTP datagrams (RFC 9297).
    pub datagrams: bool,
    /// All others by id, in order; those of WebTransport, for example.
    pub others: Vec<(u64, u64)>,
}

impl Settings {
    /// The value of one of [`Settings::others`].
    pub fn other(&self, id: u64) -> Option<u64> {
        let mut others = self.others.iter();
        others.find(|(other, _)| *other == id).map(|(_, value)| *value)
    }

    /// Parses the payload of a SETTINGS frame.
    ///
    /// # Errors
    /// `H3_SETTINGS_ERROR`: an HTTP/2 id, a repeated id, a value out of range; `H3_FRAME_ERROR`: truncated;
    /// `H3_EXCESSIVE_LOAD`: more settings than [`SETTINGS_MAX`].
    pub fn read(mut payload: &[u8]) -> Result<Self, ConnectionError> {
        let wrong = |reason| Err(ConnectionError::new(Code::H3_SETTINGS_ERROR, reason));
        let mut settings = Self::default();
        let mut ids = Vec::new();
        while !payload.is_empty() {
            let (Some(id), Some(value)) = (varint::read(&mut payload), varint::read(&mut payload))
            else {
                let reason = "SETTINGS is truncated";
                return Err(ConnectionError::new(Code::H3_FRAME_ERROR, reason));
            };
            if ids.contains(&id) {
                return wrong("a repeated setting");
            }
            if ids.len() == SETTINGS_MAX {
                let reason = "SETTINGS has too many entries";
                return Err(ConnectionError::new(Code::H3_EXCESSIVE_LOAD, reason));
            }
            ids.push(id);
            match id {
                QPACK_MAX_TABLE_CAPACITY => settings.qpack_table_bytes_max = value,
                MAX_FIELD_SECTION_SIZE => settings.field_section_bytes_max = Some(value),
                QPACK_BLOCKED_STREAMS => settings.qpack_blocked_streams_max = value,
                ENABLE_CONNECT_PROTOCOL | H3_DATAGRAM if value > 1 => {
                    return wrong("a boolean setting is neither 0 nor 1");
                }
                ENABLE_CONNECT_PROTOCOL => settings.extended_connect = value == 1,
                H3_DATAGRAM => settings.datagrams = value == 1,
                // RFC 9114 §7.2.4.1 and §11.2.2.
                0x0 | 0x2..=0x5 => return wrong("an HTTP/2 setting"),
                _ => settings.others.push((id, value)),
            }
        }
        Ok(settings)
    }

    /// Appends the payload of a SETTINGS frame; default values are omitted.
    pub fn write(&self, out: &mut impl BufMut) {
        let mut put = |id, value| {
            varint::write(out, id);
            varint::write(out, value);
        };
        for (id, value) in [
            (QPACK_MAX_TABLE_CAPACITY, self.qpack_table_bytes_max),
            (QPACK_BLOCKED_STREAMS, self.qpack_blocked_streams_max),
            (ENABLE_CONNECT_PROTOCOL, self.extended_connect.into()),
            (H3_DATAGRAM, self.datagrams.into()),
        ] {
            if value != 0 {
                put(id, value);
            }
        }
        if let Some(bytes) = self.field_section_bytes_max {
            put(MAX_FIELD_SECTION_SIZE, bytes);
        }
        for (id, value) in &self.others {
            put(*id, *value);
        }
    }

    /// Checks the SETTINGS of a server that accepted 0-RTT against the client's remembered ones
    /// (RFC 9114 §7.2.4.2, RFC 9204 §3.2.3, RFC 9297 §2.1.1).
    ///
    /// # Errors
    /// `H3_SETTINGS_ERROR`, or `QPACK_DECODER_STREAM_ERROR` for the table's capacity.
    pub fn check_remembered(&self, remembered: &Self) -> Result<(), ConnectionError> {
        let capacity = remembered.qpack_table_bytes_max;
        if capacity != 0 && capacity != self.qpack_table_bytes_max {
            return Err(ConnectionError::new(
                Code::QPACK_DECODER_STREAM_ERROR,
                "SETTINGS_QPACK_MAX_TABLE_CAPACITY differs from that of 0-RTT",
            ));
        }
        let bytes_max = |settings: &Self| settings.field_section_bytes_max.unwrap_or(u64::MAX);
        let is_reduced = bytes_max(self) < bytes_max(remembered)
            || self.qpack_blocked_streams_max < remembered.qpack_blocked_streams_max
            || !self.extended_connect & remembered.extended_connect
            || !self.datagrams & remembered.datagrams;
        if is_reduced {
            return Err(ConnectionError::new(
                Code::H3_SETTINGS_ERROR,
                "a setting is less than that of 0-RTT",
            ));
        }
        Ok(())
    }
}
