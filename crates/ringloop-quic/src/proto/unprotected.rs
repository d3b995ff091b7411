//! Retry and Version Negotiation packets, which have no keys: which of them to ignore.
//!
//! A client's engine counts each of them as a packet from the server before it checks it, and accepts
//! no Retry after the first: one damaged packet, which anybody can send who saw the client's, would
//! make it ignore the server's own. It also believes a Version Negotiation packet without a version,
//! or with another server's id. A server's engine closes the connection at a Retry.
//!
//! Owns: what a client's first packets said. Called by: `core`, for each datagram before the engine.

use super::version::{self, V1, V2};
use super::{Connection, ConnectionId};

const LONG_HEADER: u8 = 0x80;
const TYPE_BITS: u8 = 0x30;
const RETRY: u8 = 0x30;
const TAG_LEN: usize = 16;

/// What a client's first packets said, until its handshake is complete.
#[derive(Debug)]
pub(crate) struct FirstPackets {
    /// Their destination.
    pub destination: ConnectionId,
    pub version: u32,
}

/// How many bytes of a datagram to process, and whether it is one Retry or Version Negotiation
/// packet. Behind another packet they are none of the server's: it sends each alone, as they have no
/// length. Type bits are those of version 1 ([`version::receive`]).
pub(crate) fn look(datagram: &[u8]) -> (usize, bool) {
    let mut at = 0;
    while let Some(packet) = datagram.get(at..).filter(|packet| !packet.is_empty()) {
        let Some(version) = version_of(packet) else {
            break;
        };
        if version == 0 || (packet[0] & TYPE_BITS == RETRY && matches!(version, V1 | V2)) {
            return if at == 0 { (datagram.len(), true) } else { (at, false) };
        }
        let len = matches!(version, V1 | V2).then(|| version::packet_len(packet)).flatten();
        let Some(end) = len.and_then(|len| at.checked_add(len)) else {
            break;
        };
        at = end;
    }
    (datagram.len(), false)
}

/// Version of a long header.
fn version_of(packet: &[u8]) -> Option<u32> {
    let (first, rest) = packet.split_first()?;
    let version = rest.first_chunk().filter(|_| first & LONG_HEADER != 0)?;
    Some(u32::from_be_bytes(*version))
}

impl FirstPackets {
    /// Whether a Retry or Version Negotiation packet may be the server's answer to them.
    pub(crate) fn are_answered_by(&self, packet: &[u8], connection: &Connection) -> bool {
        self.answer(packet, connection).unwrap_or(false)
    }

    fn answer(&self, packet: &[u8], connection: &Connection) -> Option<bool> {
        let version = version_of(packet)?;
        let (_, rest) = connection_id(packet.get(5..)?)?;
        let (source, rest) = connection_id(rest)?;
        if version == 0 {
            return Some(source == &self.destination[..] && self.are_of_no_version_in(rest));
        }
        // RFC 9000 §17.2.5.2: neither an empty token nor a wrong tag.
        let session = connection.crypto_session();
        let has_token = rest.len() > TAG_LEN;
        let (first, others) = packet.split_at(1);
        let is_valid = || session.is_valid_retry(&self.destination, first, others);
        Some(version == self.version && has_token && is_valid())
    }

    /// RFC 8999 §6: a list is neither empty nor cut off; RFC 9000 §6.2: it lacks the client's version.
    fn are_of_no_version_in(&self, list: &[u8]) -> bool {
        let (versions, cut_off) = list.as_chunks::<4>();
        let mut numbers = versions.iter().map(|version| u32::from_be_bytes(*version));
        !versions.is_empty() && cut_off.is_empty() && numbers.all(|number| number != self.version)
    }
}

/// A connection id behind its length, and the rest.
fn connection_id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(kind: u8, version: u32, rest: &[u8]) -> Vec<u8> {
        [&[0xc0 | kind << 4][..], &version.to_be_bytes(), &[1, 7, 1, 9], rest].concat()
    }

    #[test]
    fn packets_without_keys_are_seen_first_and_cut_off_behind_others() {
        // A length of three bytes, behind an empty token in Initial packets.
        let initial = long(0, V1, &[0, 3, 1, 2, 3]);
        let handshake = long(2, V2, &[3, 1, 2, 3]);
        let retry = long(3, V1, &[1; 20]);
        let negotiation = long(0, 0, &[0, 0, 0, 1]);
        for alone in [&retry, &negotiation] {
            assert_eq!(look(alone), (alone.len(), true));
            for before in [&initial, &handshake, &[&initial[..], &handshake].concat()] {
                assert_eq!(look(&[&before[..], alone].concat()), (before.len(), false));
            }
        }
        for others in [&[][..], &[0xc0], &[0x40, 1, 2], &initial, &long(3, 0x0a0a_0a0a, &[1; 20])] {
            assert_eq!(look(others), (others.len(), false));
        }
    }

    #[test]
    fn empty_packets_and_wrong_lengths_are_stepped_over() {
        let empty = long(0, V1, &[0, 0]);
        let retry = long(3, V1, &[1; 20]);
        assert_eq!(look(&[&empty[..], &retry].concat()), (empty.len(), false));
        let beyond = long(2, V1, &[0xff; 8]);
        assert_eq!(look(&beyond), (beyond.len(), false));
    }
}
