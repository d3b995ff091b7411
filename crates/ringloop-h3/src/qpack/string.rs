//! Strings: a length that begins in the low bits of a byte, below the Huffman bit (RFC 9204 §4.1.2).

use super::huffman;
use super::integer::{self, Stop};
use bytes::Bytes;

/// Append `bytes`, Huffman-coded if that is shorter.
///
/// `prefix_bits` are those of the length; the bit above them marks Huffman coding.
pub(super) fn write(out: &mut Vec<u8>, pattern: u8, prefix_bits: u8, bytes: &[u8]) {
    let encoded_len = huffman::encoded_len(bytes);
    if encoded_len < bytes.len() {
        let pattern = pattern | 1 << prefix_bits;
        integer::write(out, pattern, prefix_bits, encoded_len as u64);
        huffman::encode(bytes, out);
    } else {
        integer::write(out, pattern, prefix_bits, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

/// Take a string of at most `len_max` bytes off the front of `bytes`.
pub(super) fn read(bytes: &mut &[u8], prefix_bits: u8, len_max: usize) -> Result<Bytes, Stop> {
    let is_huffman = bytes.first().ok_or(Stop::Incomplete)? >> prefix_bits & 1 != 0;
    let mut rest = *bytes;
    let len = integer::read(&mut rest, prefix_bits)?;
    // No code has more than 30 bits, so a longer input cannot decode to a short enough string.
    let encoded_len_max = if is_huffman { len_max.saturating_mul(30).div_ceil(8) } else { len_max };
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if len > encoded_len_max {
        return Err(Stop::TooLong);
    }
    let (string, rest) = rest.split_at_checked(len).ok_or(Stop::Incomplete)?;
    let string = if is_huffman {
        huffman::decode(string, len_max)?.into()
    } else {
        Bytes::copy_from_slice(string)
    };
    *bytes = rest;
    Ok(string)
}
