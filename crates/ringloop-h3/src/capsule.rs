//! Capsules (RFC 9297 §3.2): type, length and value, in sequence in the body of an extended CONNECT.
//!
//! Owns: [`Reader`], which accepts the body in arbitrary pieces and buffers at most one capsule's value, and
//! [`write()`]. Called by: the WebTransport sessions; any other protocol of RFC 9297 may use it.
//!
//! ```
//! use bytes::Bytes;
//! use ringloop_h3::capsule::{self, Keep, Reader};
//!
//! let mut body = Vec::new();
//! capsule::write(&mut body, 0x1234, b"skipped");
//! capsule::write(&mut body, 0x00, b"datagram");
//!
//! let mut reader = Reader::new();
//! let mut body = Bytes::from(body);
//! let first = reader.read(&mut body, |kind, len| match kind {
//!     0x00 if len <= 1500 => Ok(Keep::Value),
//!     _ => Ok::<_, ()>(Keep::Nothing),
//! });
//! assert_eq!(first.unwrap().unwrap().value, "datagram");
//! ```

use crate::varint;
use bytes::{Buf, Bytes, BytesMut};

/// `DATAGRAM`: an HTTP datagram on a stream (RFC 9297 §3.5).
pub const DATAGRAM: u64 = 0x00;

/// A complete capsule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capsule {
    /// Its type.
    pub kind: u64,
    /// Its value; a slice of the input if it arrived in one piece.
    pub value: Bytes,
}

/// What to do with a capsule, decided by its type and the length of its value in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Read the value. Up to its length is buffered, so this needs a limit.
    Value,
    /// Skip it without buffering, as RFC 9297 §3.2 requires for unknown types.
    Nothing,
}

/// Two integers of at most eight bytes.
const HEADER_BYTES_MAX: usize = 16;

/// Reads capsules from a stream's bytes, split at arbitrary points.
#[derive(Debug, Default)]
pub struct Reader {
    state: State,
}

#[derive(Debug)]
enum State {
    /// A partial type and length.
    Header {
        bytes: [u8; HEADER_BYTES_MAX],
        len: usize,
    },
    Value {
        kind: u64,
        missing_len: usize,
        value: BytesMut,
    },
    Skipped {
        missing_len: u64,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Header { bytes: [0; HEADER_BYTES_MAX], len: 0 }
    }
}

impl Reader {
    /// A reader at the start of a body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes off the front of `input` up to the end of the next capsule that is kept.
    ///
    /// Call it until it returns `None`: then `input` is empty, and the next piece of the body is needed.
    /// `decide` is called once for each capsule, with its type and the length of its value.
    ///
    /// # Errors
    /// Errors of `decide`; the reader must not be used after that.
    pub fn read<E>(
        &mut self,
        input: &mut Bytes,
        mut decide: impl FnMut(u64, u64) -> Result<Keep, E>,
    ) -> Result<Option<Capsule>, E> {
        loop {
            match &mut self.state {
                State::Header { bytes, len } => {
                    let Some((kind, value_len)) = read_header(bytes, len, input) else {
                        return Ok(None);
                    };
                    self.state = match decide(kind, value_len)? {
                        Keep::Value => State::Value {
                            kind,
                            missing_len: usize::try_from(value_len).unwrap_or(usize::MAX),
                            value: BytesMut::new(),
                        },
                        Keep::Nothing => State::Skipped { missing_len: value_len },
                    };
                }
                State::Value { kind, missing_len, value } => {
                    let Some(value) = read_value(missing_len, value, input) else {
                        return Ok(None);
                    };
                    let kind = *kind;
                    self.state = State::default();
                    return Ok(Some(Capsule { kind, value }));
                }
                State::Skipped { missing_len } => {
                    let len = usize::try_from(*missing_len)
                        .map_or(input.len(), |missing| missing.min(input.len()));
                    input.advance(len);
                    *missing_len -= len as u64;
                    if *missing_len > 0 {
                        return Ok(None);
                    }
                    self.state = State::default();
                }
            }
        }
    }

    /// True between two capsules: a body that ends within one is malformed (RFC 9297 §3.3).
    pub fn is_at_boundary(&self) -> bool {
        matches!(self.state, State::Header { len: 0, .. })
    }
}

/// Type and length, once they are complete; consumes no byte of the value.
fn read_header(
    bytes: &mut [u8; HEADER_BYTES_MAX],
    len: &mut usize,
    input: &mut Bytes,
) -> Option<(u64, u64)> {
    loop {
        let mut header = &bytes[..*len];
        if let (Some(kind), Some(value_len)) =
            (varint::read(&mut header), varint::read(&mut header))
        {
            return Some((kind, value_len));
        }
        if input.is_empty() {
            return None;
        }
        bytes[*len] = input.get_u8();
        *len += 1;
    }
}

/// A value, once it is complete; copied only if it arrives in several pieces.
fn read_value(missing_len: &mut usize, value: &mut BytesMut, input: &mut Bytes) -> Option<Bytes> {
    if value.is_empty() && input.len() >= *missing_len {
        return Some(input.split_to(*missing_len));
    }
    let piece = input.split_to(input.len().min(*missing_len));
    value.extend_from_slice(&piece);
    *missing_len -= piece.len();
    (*missing_len == 0).then(|| std::mem::take(value).freeze())
}

/// Appends a capsule to `out`.
///
/// # Panics
/// If `kind` has more than 62 bits.
pub fn write(out: &mut Vec<u8>, kind: u64, value: &[u8]) {
    varint::write(out, kind);
    varint::write(out, value.len() as u64);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses the type 3, skips other odd ones.
    fn keep_even(kind: u64, _: u64) -> Result<Keep, u64> {
        match kind {
            3 => Err(kind),
            _ if kind.is_multiple_of(2) => Ok(Keep::Value),
            _ => Ok(Keep::Nothing),
        }
    }

    fn body() -> (Vec<u8>, Vec<Capsule>) {
        let mut body = Vec::new();
        let mut kept = Vec::new();
        for (kind, len) in
            [(0, 0), (0x2843, 5), (0x78ae, 70), (1, 0), (0x190B_4D3D, 300), (1 << 61, 20_000)]
        {
            let value: Vec<u8> = (0..len).map(|i| i as u8).collect();
            write(&mut body, kind, &value);
            if kind.is_multiple_of(2) {
                kept.push(Capsule { kind, value: value.into() });
            }
        }
        (body, kept)
    }

    #[test]
    fn capsules_cut_anywhere_read_back() {
        let (body, kept) = body();
        for piece_len in (1..40).chain([100, 1000, 30_000]) {
            let mut reader = Reader::new();
            let mut read = Vec::new();
            for piece in body.chunks(piece_len) {
                let mut piece = Bytes::copy_from_slice(piece);
                while let Ok(Some(capsule)) = reader.read(&mut piece, keep_even) {
                    read.push(capsule);
                }
                assert!(piece.is_empty());
            }
            assert_eq!(read, kept);
            assert!(reader.is_at_boundary());
        }
    }

    #[test]
    fn a_value_in_one_piece_is_not_copied() {
        let mut body = Vec::new();
        write(&mut body, 0, &[7; 1000]);
        let mut body = Bytes::from(body);
        let source = body.as_ptr_range();
        let capsule = Reader::new().read(&mut body, keep_even).unwrap().unwrap();
        assert!(source.contains(&capsule.value.as_ptr()));
    }

    #[test]
    fn a_skipped_capsule_of_any_length_is_not_buffered() {
        let mut header = Vec::new();
        varint::write(&mut header, 1);
        varint::write(&mut header, (1 << 62) - 1);
        let mut reader = Reader::new();
        let mut input = Bytes::from(header);
        for _ in 0..1000 {
            assert_eq!(reader.read(&mut input, keep_even), Ok(None));
            assert!(matches!(reader.state, State::Skipped { .. }));
            input = Bytes::from_static(&[0; 4096]);
        }
        assert!(!reader.is_at_boundary());
    }

    #[test]
    fn a_refused_length_ends_reading_before_the_value() {
        let mut header = Vec::new();
        varint::write(&mut header, 0);
        varint::write(&mut header, 1 << 40);
        let decide = |_, len| if len > 10 { Err(len) } else { Ok(Keep::Value) };
        assert_eq!(Reader::new().read(&mut Bytes::from(header), decide), Err(1 << 40));
    }

    #[test]
    fn a_body_cut_within_a_capsule_is_not_at_a_boundary() {
        let mut whole = Vec::new();
        write(&mut whole, 0x78ae, &[1, 2, 3]);
        for end in 1..whole.len() {
            let mut reader = Reader::new();
            let mut part = Bytes::copy_from_slice(&whole[..end]);
            assert_eq!(reader.read(&mut part, keep_even), Ok(None));
            assert!(!reader.is_at_boundary(), "{end}");
        }
    }

    #[test]
    fn lengths_longer_than_needed_are_understood() {
        // RFC 9000 §16: an integer need not be written in the fewest bytes.
        let mut body = Bytes::from_static(&[0x40, 0, 0xc0, 0, 0, 0, 0, 0, 0, 1, 9]);
        let capsule = Reader::new().read(&mut body, keep_even).unwrap().unwrap();
        assert_eq!((capsule.kind, &capsule.value[..]), (0, &[9][..]));
    }
}
