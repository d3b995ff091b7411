//! Frames (RFC 9114 §7): a type, a length and a payload.

mod reader;

pub(crate) use reader::{Item, Reader};

use crate::error::{Code, ConnectionError};
use crate::varint;
use bytes::BufMut;

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const CANCEL_PUSH: u64 = 0x3;
pub(crate) const SETTINGS: u64 = 0x4;
pub(crate) const PUSH_PROMISE: u64 = 0x5;
pub(crate) const GOAWAY: u64 = 0x7;
pub(crate) const MAX_PUSH_ID: u64 = 0xd;
/// RFC 9218 §7.2.
pub(crate) const PRIORITY_UPDATE_OF_REQUEST: u64 = 0xf0700;
/// RFC 9218 §7.2.
pub(crate) const PRIORITY_UPDATE_OF_PUSH: u64 = 0xf0701;
/// Not a frame, but the signal of a bidirectional WebTransport stream; a session id instead of the length
/// (draft-ietf-webtrans-http3 §4.3).
pub(crate) const WT_STREAM: u64 = 0x41;

/// True for frames of HTTP/2 that HTTP/3 does not have (RFC 9114 §7.2.8).
pub(crate) const fn is_http2(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// Appends type and length of a frame.
pub(crate) fn write_head(out: &mut impl BufMut, kind: u64, len: usize) {
    varint::write(out, kind);
    varint::write(out, len as u64);
}

/// Appends a frame of one integer.
pub(crate) fn write_integer(out: &mut impl BufMut, kind: u64, value: u64) {
    write_head(out, kind, varint::len(value));
    varint::write(out, value);
}

/// Reads the payload of a frame of one integer.
pub(crate) fn read_integer(mut payload: &[u8]) -> Result<u64, ConnectionError> {
    match varint::read(&mut payload) {
        Some(value) if payload.is_empty() => Ok(value),
        _ => Err(ConnectionError::new(Code::H3_FRAME_ERROR, "the payload is not a single integer")),
    }
}
