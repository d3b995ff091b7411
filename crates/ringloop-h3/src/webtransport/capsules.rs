//! The capsules of a session (draft-ietf-webtrans-http3-16 §9.6).

use super::config::Direction;
use super::flow::{Resource, VIOLATION};
use crate::capsule::{self, Capsule, Keep};
use crate::limits::{CLOSE_REASON_BYTES_MAX, DATAGRAM_CAPSULE_BYTES_MAX};
use crate::{Code, varint};
use bytes::Bytes;

const CLOSE_SESSION: u64 = 0x2843;
const DRAIN_SESSION: u64 = 0x78ae;
const MAX_DATA: u64 = 0x190b_4d3d;
const MAX_STREAM_DATA: u64 = 0x190b_4d3e;
const MAX_STREAMS_BIDI: u64 = 0x190b_4d3f;
const MAX_STREAMS_UNI: u64 = 0x190b_4d40;
const DATA_BLOCKED: u64 = 0x190b_4d41;
const STREAM_DATA_BLOCKED: u64 = 0x190b_4d42;
const STREAMS_BLOCKED_BIDI: u64 = 0x190b_4d43;
const STREAMS_BLOCKED_UNI: u64 = 0x190b_4d44;

/// Bytes of the largest integer.
const INTEGER_BYTES_MAX: u64 = 8;

/// The peer's capsules about its session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Close { code: u32, reason: String },
    Drain,
    Datagram(Bytes),
    Max(Resource, u64),
    Blocked(Resource, u64),
}

/// A violation that ends the session: the code that its stream is reset with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) code: Code,
    pub(super) reason: &'static str,
}

const fn malformed(reason: &'static str) -> Violation {
    let code = Code::H3_MESSAGE_ERROR;
    Violation { code, reason }
}

/// Decides by type and length which capsules to read; without flow control its capsules are ignored (§5.1).
///
/// # Errors
/// An invalid length for the type, and the types that §5.4 prohibits.
pub(super) fn decide(kind: u64, len: u64, has_flow_control: bool) -> Result<Keep, Violation> {
    match kind {
        CLOSE_SESSION if !(4..=4 + CLOSE_REASON_BYTES_MAX as u64).contains(&len) => {
            Err(malformed("WT_CLOSE_SESSION has no code, or a reason of more than 1024 bytes"))
        }
        DRAIN_SESSION if len > 0 => Err(malformed("WT_DRAIN_SESSION is not empty")),
        CLOSE_SESSION | DRAIN_SESSION => Ok(Keep::Value),
        capsule::DATAGRAM if len <= DATAGRAM_CAPSULE_BYTES_MAX => Ok(Keep::Value),
        MAX_STREAM_DATA | STREAM_DATA_BLOCKED => Err(Violation {
            code: Code(VIOLATION),
            reason: "limits of single streams belong to QUIC",
        }),
        _ if resource(kind).is_none() || !has_flow_control => Ok(Keep::Nothing),
        _ if len > INTEGER_BYTES_MAX => Err(malformed("a limit is too long")),
        _ => Ok(Keep::Value),
    }
}

/// Parses a capsule that [`decide`] has kept.
///
/// # Errors
/// The capsule is malformed.
pub(super) fn parse(capsule: Capsule) -> Result<Message, Violation> {
    let Capsule { kind, value } = capsule;
    match kind {
        CLOSE_SESSION => {
            let Some(code) = value.first_chunk().copied().map(u32::from_be_bytes) else {
                return Err(malformed("WT_CLOSE_SESSION has no code"));
            };
            let reason = String::from_utf8(value[4..].to_vec())
                .map_err(|_| malformed("the reason of WT_CLOSE_SESSION is not UTF-8"))?;
            Ok(Message::Close { code, reason })
        }
        DRAIN_SESSION => Ok(Message::Drain),
        capsule::DATAGRAM => Ok(Message::Datagram(value)),
        _ => {
            let mut rest = &value[..];
            match (resource(kind), varint::read(&mut rest)) {
                (Some((resource, true)), Some(limit)) if rest.is_empty() => {
                    Ok(Message::Max(resource, limit))
                }
                (Some((resource, false)), Some(limit)) if rest.is_empty() => {
                    Ok(Message::Blocked(resource, limit))
                }
                _ => Err(malformed("a limit is not a single integer")),
            }
        }
    }
}

/// The subject of a flow control capsule, and true if it raises a limit.
fn resource(kind: u64) -> Option<(Resource, bool)> {
    Some(match kind {
        MAX_DATA => (Resource::Data, true),
        MAX_STREAMS_BIDI => (Resource::Streams(Direction::Bidirectional), true),
        MAX_STREAMS_UNI => (Resource::Streams(Direction::Unidirectional), true),
        DATA_BLOCKED => (Resource::Data, false),
        STREAMS_BLOCKED_BIDI => (Resource::Streams(Direction::Bidirectional), false),
        STREAMS_BLOCKED_UNI => (Resource::Streams(Direction::Unidirectional), false),
        _ => return None,
    })
}

/// `WT_CLOSE_SESSION`; a reason of more than 1024 bytes is cut at a character's boundary.
pub(super) fn close(code: u32, reason: &str) -> Bytes {
    let mut len = reason.len().min(CLOSE_REASON_BYTES_MAX);
    while !reason.is_char_boundary(len) {
        len -= 1;
    }
    let reason = &reason[..len];
    let value = [&code.to_be_bytes(), reason.as_bytes()].concat();
    write(CLOSE_SESSION, &value)
}

/// `WT_DRAIN_SESSION`.
pub(super) fn drain() -> Bytes {
    write(DRAIN_SESSION, &[])
}

/// `WT_MAX_DATA` or `WT_MAX_STREAMS`.
pub(super) fn max(resource: Resource, limit: u64) -> Bytes {
    let kind = match resource {
        Resource::Data => MAX_DATA,
        Resource::Streams(Direction::Bidirectional) => MAX_STREAMS_BIDI,
        Resource::Streams(Direction::Unidirectional) => MAX_STREAMS_UNI,
    };
    write_limit(kind, limit)
}

/// `WT_DATA_BLOCKED` or `WT_STREAMS_BLOCKED`.
pub(super) fn blocked(resource: Resource, limit: u64) -> Bytes {
    let kind = match resource {
        Resource::Data => DATA_BLOCKED,
        Resource::Streams(Direction::Bidirectional) => STREAMS_BLOCKED_BIDI,
        Resource::Streams(Direction::Unidirectional) => STREAMS_BLOCKED_UNI,
    };
    write_limit(kind, limit)
}

fn write_limit(kind: u64, limit: u64) -> Bytes {
    let mut value = Vec::new();
    varint::write(&mut value, limit.min(varint::MAX));
    write(kind, &value)
}

fn write(kind: u64, value: &[u8]) -> Bytes {
    let mut out = Vec::new();
    capsule::write(&mut out, kind, value);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capsule::Reader;

    fn read(bytes: impl Into<Bytes>) -> Result<Option<Message>, Violation> {
        let capsule = Reader::new().read(&mut bytes.into(), |kind, len| decide(kind, len, true))?;
        capsule.map(parse).transpose()
    }

    fn read_capsule(kind: u64, value: &[u8]) -> Result<Option<Message>, Violation> {
        read(write(kind, value))
    }

    #[test]
    fn every_capsule_reads_back() {
        let close_of = |code, reason: &str| {
            let reason = reason.to_owned();
            Ok(Some(Message::Close { code, reason }))
        };
        assert_eq!(read(close(u32::MAX, "späť")), close_of(u32::MAX, "späť"));
        assert_eq!(read(close(0, "")), close_of(0, ""));
        assert_eq!(read(drain()), Ok(Some(Message::Drain)));
        for (resource, limit) in [
            (Resource::Data, varint::MAX),
            (Resource::Streams(Direction::Bidirectional), 0),
            (Resource::Streams(Direction::Unidirectional), 5000),
        ] {
            assert_eq!(read(max(resource, limit)), Ok(Some(Message::Max(resource, limit))));
            let message = Message::Blocked(resource, limit);
            assert_eq!(read(blocked(resource, limit)), Ok(Some(message)));
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let Ok(Some(Message::Close { reason, .. })) = read(close(1, &"€".repeat(1000))) else {
            panic!("not a close");
        };
        assert_eq!(reason, "€".repeat(341));
    }

    #[test]
    fn malformed_capsules_are_violations() {
        for (kind, value) in [
            (CLOSE_SESSION, &[0, 0, 0][..]),
            (CLOSE_SESSION, &[0, 0, 0, 0, 0xff]),
            (CLOSE_SESSION, &[b'a'; 1029]),
            (DRAIN_SESSION, &[0]),
            (MAX_DATA, &[]),
            (MAX_DATA, &[0x40]),
            (MAX_DATA, &[1, 2]),
            (MAX_STREAMS_BIDI, &[0; 9]),
            (STREAMS_BLOCKED_UNI, &[0x80, 0]),
        ] {
            let read = read_capsule(kind, value);
            assert_eq!(read.map_err(|violation| violation.code), Err(Code::H3_MESSAGE_ERROR));
        }
        for kind in [MAX_STREAM_DATA, STREAM_DATA_BLOCKED] {
            let read = read_capsule(kind, &[0, 1]);
            assert_eq!(read.map_err(|violation| violation.code), Err(Code(VIOLATION)));
        }
    }

    #[test]
    fn unknown_and_disabled_capsules_are_skipped() {
        assert_eq!(read_capsule(0x1234, b"whatever"), Ok(None));
        assert_eq!(decide(MAX_DATA, 1 << 40, false), Ok(Keep::Nothing));
        assert_eq!(decide(capsule::DATAGRAM, 1 << 40, true), Ok(Keep::Nothing));
    }
}
