//! Packet keys: rustls' keys behind the engine's traits.
//!
//! Owns: the mapping between the traits; the version 2 keys, which write and check that version's
//! type bits in long headers; and whether a Handshake packet was opened. Called by: `session`,
//! `core`. Keys are derived by rustls.

use super::final_sizes;
use super::limits_of::limits_of;
use super::version;
use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, HeaderKey, KeyPair, Keys, PacketKey};
use quinn_proto::{ConnectionId, Side};
use rustls::quic::{HeaderProtectionKey, Suite, Version};
use std::cell::Cell;

fn side(side: Side) -> rustls::Side {
    match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    }
}

pub(super) fn initial_keys(
    version: Version,
    dst_cid: &ConnectionId,
    of: Side,
    suite: &Suite,
) -> Keys {
    long_keys(suite.keys(dst_cid, side(of), version), version)
}

/// Keys of packets with long headers.
pub(super) fn long_keys(keys: rustls::quic::Keys, version: Version) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(Header(keys.local.header)),
            remote: Box::new(Header(keys.remote.header)),
        },
        packet: KeyPair {
            local: packet_key(keys.local.packet, version),
            remote: packet_key(keys.remote.packet, version),
        },
    }
}

pub(super) fn packet_key(
    key: Box<dyn rustls::quic::PacketKey>,
    version: Version,
) -> Box<dyn PacketKey> {
    let key: Box<dyn PacketKey> = match version {
        Version::V2 => Box::new(LongV2(Packet(key))),
        _ => Box::new(Packet(key)),
    };
    #[cfg(any(test, fuzzing))]
    let key = Box::new(super::tamper::Tampered(key));
    key
}

pub(super) struct Header(pub Box<dyn HeaderProtectionKey>);

impl Header {
    /// The sample, the first byte, and the bytes of the packet number.
    fn parts<'a>(
        &self,
        pn_offset: usize,
        packet: &'a mut [u8],
    ) -> (&'a [u8], &'a mut u8, &'a mut [u8]) {
        // RFC 9001 §5.4.2: the sample is taken as if the packet number had four bytes.
        let (header, sample) = packet.split_at_mut(pn_offset + 4);
        let (first, rest) = header.split_at_mut(1);
        let sample = &sample[..self.0.sample_len()];
        (sample, &mut first[0], &mut rest[pn_offset - 1..pn_offset + 3])
    }
}

impl HeaderKey for Header {
    fn decrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        let (sample, first, number) = self.parts(pn_offset, packet);
        // Fails only for a sample of a wrong length.
        drop(self.0.decrypt_in_place(sample, first, number));
    }

    fn encrypt(&self, pn_offset: usize, packet: &mut [u8]) {
        let (sample, first, number) = self.parts(pn_offset, packet);
        drop(self.0.encrypt_in_place(sample, first, number));
    }

    fn sample_size(&self) -> usize {
        self.0.sample_len()
    }
}

thread_local! {
    static HANDSHAKE_OPENED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread has opened a valid Handshake packet since the last call: its sender received
/// packets at its address.
pub(crate) fn take_handshake_opened() -> bool {
    HANDSHAKE_OPENED.take()
}

struct Packet(Box<dyn rustls::quic::PacketKey>);

impl PacketKey for Packet {
    fn encrypt(&self, number: u64, buf: &mut [u8], header_len: usize) {
        let (header, sealed) = buf.split_at_mut(header_len);
        let (payload, tag) = sealed.split_at_mut(sealed.len() - self.0.tag_len());
        // Fails only for payloads beyond the cipher's limit, far above any packet; the packet is
        // then sent with a zero tag, which the peer drops.
        if let Ok(written) = self.0.encrypt_in_place(number, header, payload) {
            tag.copy_from_slice(written.as_ref());
        }
    }

    fn decrypt(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let plain = self.0.decrypt_in_place(number, header, payload);
        let len = plain.map_err(|_| CryptoError)?.len();
        payload.truncate(len);
        if version::is_handshake(header) {
            HANDSHAKE_OPENED.set(true);
        }
        final_sizes::look(payload);
        Ok(())
    }

    limits_of!(0);
}

/// The keys of long headers in version 2.
struct LongV2(Packet);

impl PacketKey for LongV2 {
    fn encrypt(&self, number: u64, buf: &mut [u8], header_len: usize) {
        buf[0] = version::to_v2(buf[0]);
        self.0.encrypt(number, buf, header_len);
    }

    fn decrypt(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let mut header = header.to_vec();
        if let Some(first) = header.first_mut() {
            *first = version::to_v2(*first);
        }
        self.0.decrypt(number, &header, payload)
    }

    limits_of!(0);
}
