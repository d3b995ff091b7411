//! QUIC's variable-length integers: 1, 2, 4 or 8 bytes, whose first two bits give the length (RFC 9000 §16).

use bytes::{Buf, BufMut, Bytes};

/// The largest value.
pub const MAX: u64 = (1 << 62) - 1;

/// Bytes that `value` takes.
pub const fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Appends `value`.
///
/// # Panics
/// If it is more than [`MAX`].
pub fn write(out: &mut impl BufMut, value: u64) {
    assert!(value <= MAX, "a varint has 62 bits");
    match len(value) {
        1 => out.put_u8(value as u8),
        2 => out.put_u16(value as u16 | 0x4000),
        4 => out.put_u32(value as u32 | 0x8000_0000),
        _ => out.put_u64(value | 0xc000_0000_0000_0000),
    }
}

/// Takes an integer off the front of `bytes`; `None`, and consumes nothing, if it is incomplete.
pub fn read(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let (integer, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    *bytes = rest;
    Some(value(integer))
}

fn value(integer: &[u8]) -> u64 {
    let first = u64::from(integer[0] & 0x3f);
    let rest = integer[1..].iter();
    rest.fold(first, |value, byte| value << 8 | u64::from(*byte))
}

/// An integer that arrives in pieces.
#[derive(Debug, Clone, Copy, Default)]
pub struct Partial {
    bytes: [u8; 8],
    len: u8,
}

impl Partial {
    /// Takes the integer's bytes off the front of `input`; returns its value once it is complete, and starts over.
    pub fn read(&mut self, input: &mut Bytes) -> Option<u64> {
        if self.len == 0 {
            let mut rest = &input[..];
            if let Some(value) = read(&mut rest) {
                input.advance(input.len() - rest.len());
                return Some(value);
            }
        }
        while let Some(&byte) = input.first() {
            input.advance(1);
            self.bytes[usize::from(self.len)] = byte;
            self.len += 1;
            let whole = 1 << (self.bytes[0] >> 6);
            if self.len == whole {
                self.len = 0;
                return Some(value(&self.bytes[..usize::from(whole)]));
            }
        }
        None
    }

    /// Bytes that the integer still needs; 1 before its first byte, which encodes the length.
    pub fn missing(&self) -> usize {
        if self.len == 0 { 1 } else { (1 << (self.bytes[0] >> 6)) - usize::from(self.len) }
    }

    /// True if no byte of an integer has been consumed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_9000_appendix_a_1() {
        for (bytes, expected) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(read(&mut &bytes[..]), Some(expected));
        }
    }

    #[test]
    fn every_boundary_reads_back_whole_and_in_pieces() {
        for bit in 0..62 {
            for value in [(1_u64 << bit) - 1, 1 << bit, MAX] {
                let mut out = Vec::new();
                write(&mut out, value);
                assert_eq!(out.len(), len(value));
                let mut partial = Partial::default();
                for (at, byte) in out.iter().enumerate() {
                    assert_eq!(read(&mut &out[..at]), None);
                    let mut input = Bytes::copy_from_slice(&[*byte, 7]);
                    if at + 1 < out.len() {
                        input.truncate(1);
                        assert_eq!(partial.read(&mut input), None);
                    } else {
                        assert_eq!(partial.read(&mut input), Some(value));
                        assert_eq!(input, &[7][..]);
                    }
                }
                assert!(partial.is_empty());
            }
        }
    }
}
