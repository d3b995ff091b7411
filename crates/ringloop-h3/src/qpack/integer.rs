//! Integers that begin in the low bits of a byte (RFC 7541 §5.1, RFC 9204 §4.1.1).

/// Append `value`, whose first bits share a byte with `pattern`.
///
/// `prefix_bits` is 1 to 8; `pattern` is 0 in these bits.
pub(super) fn write(out: &mut Vec<u8>, pattern: u8, prefix_bits: u8, value: u64) {
    let limit = (1_u64 << prefix_bits) - 1;
    if value < limit {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | limit as u8);
    let mut rest = value - limit;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Why a parser returns no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The input is incomplete.
    Incomplete,
    /// A string is longer than its limit.
    TooLong,
    /// Invalid encoding; says why.
    Invalid(&'static str),
}

/// Take an integer off the front of `bytes`; the bits before its prefix are left to the caller.
pub(super) fn read(bytes: &mut &[u8], prefix_bits: u8) -> Result<u64, Stop> {
    let (&first, mut rest) = bytes.split_first().ok_or(Stop::Incomplete)?;
    let limit = (1_u64 << prefix_bits) - 1;
    let mut value = u64::from(first) & limit;
    if value == limit {
        let mut shift = 0_u32;
        loop {
            let (&byte, behind) = rest.split_first().ok_or(Stop::Incomplete)?;
            rest = behind;
            // RFC 9204 §4.1.1: 62 bits must be supported, so nine bytes after the prefix.
            if shift > 56 {
                return Err(Stop::Invalid("an integer has more than 62 bits"));
            }
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
        if value >> 62 != 0 {
            return Err(Stop::Invalid("an integer has more than 62 bits"));
        }
    }
    *bytes = rest;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_7541_appendix_c_1() {
        for (value, prefix, expected) in [
            (10, 5, &[0b01010][..]),
            (1337, 5, &[0b11111, 0b1001_1010, 0b1010]),
            (42, 8, &[0b10_1010]),
        ] {
            let mut out = Vec::new();
            write(&mut out, 0, prefix, value);
            assert_eq!(out, expected);
            assert_eq!(read(&mut &out[..], prefix), Ok(value));
        }
    }

    #[test]
    fn every_boundary_reads_back_and_every_cut_is_incomplete() {
        for prefix in 1..=8 {
            for bit in 0..62 {
                for value in [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1] {
                    let mut out = Vec::new();
                    write(&mut out, 0, prefix, value);
                    let mut left = &out[..];
                    assert_eq!(read(&mut left, prefix), Ok(value));
                    assert_eq!(left, b"");
                    for end in 0..out.len() {
                        assert_eq!(read(&mut &out[..end], prefix), Err(Stop::Incomplete));
                    }
                }
            }
        }
    }

    #[test]
    fn integers_beyond_62_bits_are_refused() {
        let endless = [0xff; 40];
        assert!(matches!(read(&mut &endless[..], 5), Err(Stop::Invalid(_))));
        let mut out = Vec::new();
        write(&mut out, 0, 8, 1 << 62);
        assert!(matches!(read(&mut &out[..], 8), Err(Stop::Invalid(_))));
    }
}
