//! QUIC version 2 (RFC 9369) on top of an engine that supports version 1.
//!
//! Differences on the wire, and where they are handled:
//!
//! | what | where |
//! |---|---|
//! | salt, labels of the key derivation | rustls, with [`rustls::quic::Version::V2`] from `session` |
//! | key and nonce of the Retry integrity tag | `session` |
//! | the two type bits of long headers | here: translated before the engine reads a datagram; written by `session`'s packet keys before they seal one |
//!
//! The type bits are not header-protected (RFC 9001 §5.4.1 masks the low four bits of the byte), so
//! they can be changed in a sealed packet; but they are authenticated, so the version 2 packet keys
//! restore them for the check.

/// RFC 9000.
pub(crate) const V1: u32 = 1;
/// RFC 9369 §3.1.
pub(crate) const V2: u32 = 0x6b33_43cf;

const LONG_HEADER: u8 = 0x80;
const TYPE_BITS: u8 = 0x30;

/// Version 1 type bits to version 2: Initial 0 → 1, 0-RTT 1 → 2, Handshake 2 → 3, Retry 3 → 0.
pub(crate) fn to_v2(first: u8) -> u8 {
    (first & !TYPE_BITS) | ((first & TYPE_BITS).wrapping_add(0x10) & TYPE_BITS)
}

/// Version 2 type bits to version 1.
fn to_v1(first: u8) -> u8 {
    (first & !TYPE_BITS) | ((first & TYPE_BITS).wrapping_sub(0x10) & TYPE_BITS)
}

/// Whether a packet starts with a long header of version 2.
pub(crate) fn is_v2(packet: &[u8]) -> bool {
    matches!(packet, [first, version @ ..]
        if first & LONG_HEADER != 0 && version.starts_with(&V2.to_be_bytes()))
}

/// Changes the type bits of all version 2 packets in a datagram to version 1. What does not parse
/// is left for the engine to drop.
pub(crate) fn receive(datagram: &mut [u8]) {
    let mut rest = datagram;
    while is_v2(rest) {
        rest[0] = to_v1(rest[0]);
        let len = packet_len(rest).unwrap_or(rest.len()).min(rest.len());
        rest = &mut rest[len..];
    }
}

/// Whether a header is that of a Handshake packet, which a client sends once it received what was
/// sent to its address (RFC 9000 §8.1); type bits are those of the header's version.
pub(super) fn is_handshake(header: &[u8]) -> bool {
    const HANDSHAKE: u8 = 0x20;
    let first = header.first().copied().unwrap_or(0);
    let kind = if is_v2(header) { to_v1(first) } else { first };
    first & LONG_HEADER != 0 && kind & TYPE_BITS == HANDSHAKE
}

/// Length of a datagram's first packet; its type bits are those of version 1.
pub(super) fn packet_len(packet: &[u8]) -> Option<usize> {
    const INITIAL: u8 = 0x00;
    const RETRY: u8 = 0x30;
    let kind = packet[0] & TYPE_BITS;
    if kind == RETRY {
        return None;
    }
    let mut at = 5;
    for _connection_id in 0..2 {
        at += 1 + usize::from(*packet.get(at)?);
    }
    if kind == INITIAL {
        let (token_len, size) = varint(packet.get(at..)?)?;
        at = at.checked_add(size)?.checked_add(token_len)?;
    }
    let (len, size) = varint(packet.get(at..)?)?;
    at.checked_add(size)?.checked_add(len)
}

/// A variable-length integer (RFC 9000 §16), and its encoded length.
pub(super) fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = *bytes.first()?;
    let size = 1 << (first >> 6);
    let rest = bytes.get(1..size)?.iter();
    let value = rest.fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((usize::try_from(value).ok()?, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_bits_round_trip() {
        for kind in 0..4u8 {
            let v1 = 0xc3 | kind << 4;
            assert_eq!(to_v2(v1), 0xc3 | ((kind + 1) % 4) << 4);
            assert_eq!(to_v1(to_v2(v1)), v1);
        }
    }

    #[test]
    fn handshake_packets_are_recognised_per_version() {
        let header = |first: u8, version: u32| [&[first][..], &version.to_be_bytes()].concat();
        for (first, version, expected) in [
            (0xe1, V1, true),
            (0xc1, V1, false),
            (0xd1, V1, false),
            (0x61, V1, false),
            (0xf1, V2, true),
            (0xe1, V2, false),
            (0xd1, V2, false),
        ] {
            assert_eq!(is_handshake(&header(first, version)), expected);
        }
        assert!(!is_handshake(&[]));
    }

    #[test]
    fn all_long_headers_of_a_datagram_are_translated() {
        let long = |kind: u8, token: &[u8], body: &[u8]| {
            let mut packet = vec![0xc0 | kind << 4];
            packet.extend_from_slice(&V2.to_be_bytes());
            packet.extend_from_slice(&[2, 1, 1, 1, 9]);
            packet.extend_from_slice(token);
            // Two bytes of length.
            packet.extend_from_slice(&(0x4000 | body.len() as u16).to_be_bytes());
            packet.extend_from_slice(body);
            packet
        };
        let initial = long(1, &[3, 7, 7, 7], &[0xff; 70]);
        let handshake = long(3, &[], &[0xff; 30]);
        let short = [0x70, 1, 2, 3];
        let mut datagram = [&initial[..], &handshake, &short].concat();
        receive(&mut datagram);
        assert_eq!(datagram[0], 0xc0);
        assert_eq!(datagram[initial.len()], 0xe0);
        assert_eq!(datagram[initial.len() + handshake.len()..], short);
        // Another version, and truncated packets, are left alone without a panic.
        let mut other = initial.clone();
        other[4] ^= 1;
        let before = other.clone();
        receive(&mut other);
        assert_eq!(other, before);
        for end in 0..datagram.len() {
            receive(&mut [&initial[..], &handshake].concat()[..end.min(initial.len())]);
        }
    }
}
