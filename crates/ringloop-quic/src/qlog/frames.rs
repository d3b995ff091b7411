//! Frames and transport parameters as JSON, by the names of qlog's QUIC events.
//!
//! Called by: [`super::Log`]. Not validated: what does not parse ends the list, and the engine
//! reports it.

use crate::proto::reader::Reader;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Summary of a packet's frames.
#[derive(Default)]
pub(super) struct Frames {
    /// Contents of a JSON list.
    pub json: String,
    /// The peer's packet numbers that it acknowledges.
    pub acked: Vec<RangeInclusive<u64>>,
    /// Whether it counts as in flight (RFC 9002 §2).
    pub is_in_flight: bool,
    /// PING and padding only: an MTU probe.
    pub is_probe: bool,
}

impl Frames {
    pub(super) fn read(payload: &[u8]) -> Self {
        let mut frames = Self { is_probe: true, ..Self::default() };
        let mut reader = Reader(payload);
        while !reader.0.is_empty() {
            let comma = if frames.json.is_empty() { "" } else { "," };
            let Some(frame) = frames.next(&mut reader) else {
                frames.json += comma;
                frames.json += "{\"frame_type\":\"unknown\"}";
                return frames;
            };
            frames.json += comma;
            frames.json += &frame;
        }
        frames
    }

    fn next(&mut self, reader: &mut Reader<'_>) -> Option<String> {
        let kind = reader.number()?;
        self.is_in_flight |= !matches!(kind, 0x02 | 0x03 | 0x1c | 0x1d);
        self.is_probe &= matches!(kind, 0x00 | 0x01 | 0x1f);
        Some(match kind {
            0x00 => {
                let rest = reader.0;
                let len = rest.iter().take_while(|&&byte| byte == 0).count();
                reader.0 = &rest[len..];
                format!("{{\"frame_type\":\"padding\",\"payload_length\":{}}}", len + 1)
            }
            0x02 | 0x03 => self.ack(reader, kind == 0x03)?,
            0x06 => {
                let offset = reader.number()?;
                let len = reader.take_counted()?.len();
                format!("{{\"frame_type\":\"crypto\",\"offset\":{offset},\"length\":{len}}}")
            }
            0x08..=0x0f => stream(reader, kind)?,
            0x30 | 0x31 => {
                let len = match kind {
                    0x31 => reader.take_counted()?.len(),
                    _ => std::mem::take(&mut reader.0).len(),
                };
                format!("{{\"frame_type\":\"datagram\",\"length\":{len}}}")
            }
            0x1c | 0x1d => close(reader, kind)?,
            _ => other(reader, kind)?,
        })
    }

    fn ack(&mut self, reader: &mut Reader<'_>, has_ecn: bool) -> Option<String> {
        let largest = reader.number()?;
        // In units of 8 us, unless the peer changed it (RFC 9000 §18.2, ack_delay_exponent).
        let delay = Duration::from_micros(reader.number()?.saturating_mul(8));
        let delay_ms = delay.as_secs_f64() * 1e3;
        let range_count = reader.number()?;
        let mut smallest = largest.checked_sub(reader.number()?)?;
        let mut json = format!(
            "{{\"frame_type\":\"ack\",\"ack_delay\":{delay_ms:.3},\"acked_ranges\":[[{smallest},{largest}]"
        );
        self.acked.push(smallest..=largest);
        for _range in 0..range_count {
            let end = smallest.checked_sub(reader.number()?.checked_add(2)?)?;
            smallest = end.checked_sub(reader.number()?)?;
            let _ = write!(json, ",[{smallest},{end}]");
            self.acked.push(smallest..=end);
        }
        json.push(']');
        if has_ecn {
            for name in ["ect0", "ect1", "ce"] {
                let _ = write!(json, ",\"{name}\":{}", reader.number()?);
            }
        }
        json.push('}');
        Some(json)
    }
}

fn stream(reader: &mut Reader<'_>, kind: u64) -> Option<String> {
    let id = reader.number()?;
    let offset = if kind & 4 != 0 { reader.number()? } else { 0 };
    let len = match kind & 2 {
        0 => std::mem::take(&mut reader.0).len(),
        _ => reader.take_counted()?.len(),
    };
    let fin = kind & 1 != 0;
    Some(format!(
        "{{\"frame_type\":\"stream\",\"stream_id\":{id},\"offset\":{offset},\"length\":{len},\"fin\":{fin}}}"
    ))
}

fn close(reader: &mut Reader<'_>, kind: u64) -> Option<String> {
    let code = reader.number()?;
    let space = if kind == 0x1c {
        reader.number()?;
        "transport"
    } else {
        "application"
    };
    let reason = escaped(&String::from_utf8_lossy(reader.take_counted()?));
    Some(format!(
        "{{\"frame_type\":\"connection_close\",\"error_space\":\"{space}\",\"error_code\":{code},\"reason\":\"{reason}\"}}"
    ))
}

/// Frames that consist of integers and some bytes.
fn other(reader: &mut Reader<'_>, kind: u64) -> Option<String> {
    let (name, numbers): (&str, &[&str]) = match kind {
        0x01 => ("ping", &[]),
        0x04 => ("reset_stream", &["stream_id", "error_code", "final_size"]),
        0x05 => ("stop_sending", &["stream_id", "error_code"]),
        0x07 => ("new_token", &[]),
        0x10 => ("max_data", &["maximum"]),
        0x11 => ("max_stream_data", &["stream_id", "maximum"]),
        0x12 | 0x13 => ("max_streams", &["maximum"]),
        0x14 => ("data_blocked", &["limit"]),
        0x15 => ("stream_data_blocked", &["stream_id", "limit"]),
        0x16 | 0x17 => ("streams_blocked", &["limit"]),
        0x18 => ("new_connection_id", &["sequence_number", "retire_prior_to"]),
        0x19 => ("retire_connection_id", &["sequence_number"]),
        0x1a => ("path_challenge", &[]),
        0x1b => ("path_response", &[]),
        0x1e => ("handshake_done", &[]),
        0x1f => ("immediate_ack", &[]),
        0x24 => ("reset_stream_at", &["stream_id", "error_code", "final_size", "reliable_size"]),
        0xaf => (
            "ack_frequency",
            &[
                "sequence_number",
                "ack_eliciting_threshold",
                "request_max_ack_delay",
                "reordering_threshold",
            ],
        ),
        _ => return None,
    };
    let mut json = format!("{{\"frame_type\":\"{name}\"");
    for number in numbers {
        let _ = write!(json, ",\"{number}\":{}", reader.number()?);
    }
    match kind {
        0x07 => {
            let token = hex(reader.take_counted()?);
            let _ = write!(json, ",\"token\":{{\"raw\":{{\"data\":\"{token}\"}}}}");
        }
        0x12 | 0x16 => json += ",\"stream_type\":\"bidirectional\"",
        0x13 | 0x17 => json += ",\"stream_type\":\"unidirectional\"",
        0x18 => {
            let len = usize::from(*reader.take(1)?.first()?);
            let id = hex(reader.take(len)?);
            // The reset token is a secret.
            reader.take(16)?;
            let _ = write!(json, ",\"connection_id\":\"{id}\"");
        }
        0x1a | 0x1b => {
            let _ = write!(json, ",\"data\":\"{}\"", hex(reader.take(8)?));
        }
        _ => {}
    }
    json.push('}');
    Some(json)
}

/// Bytes in hexadecimal, as in qlog.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The transport parameters that qlog names; each starts with a comma.
pub(super) fn parameters(bytes: &[u8]) -> String {
    let (mut reader, mut json) = (Reader(bytes), String::new());
    while let Some(number) = reader.number()
        && let Some(value) = reader.take_counted()
    {
        let name = match number {
            0x00 => "original_destination_connection_id",
            0x01 => "max_idle_timeout",
            0x03 => "max_udp_payload_size",
            0x04 => "initial_max_data",
            0x05 => "initial_max_stream_data_bidi_local",
            0x06 => "initial_max_stream_data_bidi_remote",
            0x07 => "initial_max_stream_data_uni",
            0x08 => "initial_max_streams_bidi",
            0x09 => "initial_max_streams_uni",
            0x0a => "ack_delay_exponent",
            0x0b => "max_ack_delay",
            0x0e => "active_connection_id_limit",
            0x0f => "initial_source_connection_id",
            0x10 => "retry_source_connection_id",
            0x20 => "max_datagram_frame_size",
            _ => continue,
        };
        let written = match number {
            0x00 | 0x0f | 0x10 => write!(json, ",\"{name}\":\"{}\"", hex(value)),
            _ => match Reader(value).number() {
                Some(value) => write!(json, ",\"{name}\":{value}"),
                None => Ok(()),
            },
        };
        let _ = written;
    }
    json
}

/// Escapes a text for a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\\' => escaped.extend(['\\', char]),
            char if (char as u32) < 0x20 => {
                let _ = write!(escaped, "\\u{:04x}", char as u32);
            }
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_named_up_to_the_first_parse_error() {
        let payload = [
            &[0x02, 0x05, 0x08, 0x01, 0x01, 0x00, 0x02][..],
            &[0x0f, 0x04, 0x40, 0x64, 0x02, 7, 7],
            &[0x00, 0x00, 0x1e],
        ]
        .concat();
        let frames = Frames::read(&payload);
        assert_eq!(
            frames.json,
            "{\"frame_type\":\"ack\",\"ack_delay\":0.064,\"acked_ranges\":[[4,5],[0,2]]},\
             {\"frame_type\":\"stream\",\"stream_id\":4,\"offset\":100,\"length\":2,\"fin\":true},\
             {\"frame_type\":\"padding\",\"payload_length\":2},{\"frame_type\":\"handshake_done\"}"
        );
        assert_eq!(frames.acked, [4..=5, 0..=2]);
        assert!(frames.is_in_flight && !frames.is_probe);
        for end in 0..payload.len() {
            assert!(Frames::read(&payload[..end]).json.len() <= frames.json.len());
        }
        let unknown = Frames::read(&[0x01, 0x21, 0xff]);
        assert_eq!(unknown.json, "{\"frame_type\":\"ping\"},{\"frame_type\":\"unknown\"}");
        assert_eq!(escaped("a\"b\\\n"), "a\\\"b\\\\\\u000a");
    }
}
