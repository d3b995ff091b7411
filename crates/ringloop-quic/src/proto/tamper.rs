//! Lets our own peer break the rules under valid keys; for fuzzing only, not part of release
//! builds.
//!
//! Owns: the frames that replace those of this thread's next packet, and the transport parameters
//! that replace those of its next handshake. Called by: `fuzz` sets, `session` reads.

use super::limits_of::limits_of;
use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};
use std::cell::RefCell;

thread_local! {
    static FRAMES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    static PARAMETERS: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Makes the next sealed packet carry these frames instead of its own, padded to its length.
pub(crate) fn set_frames(frames: Option<&[u8]>) {
    FRAMES.set(frames.map(<[u8]>::to_vec));
}

/// Makes the next handshake send these transport parameters in addition to its own; same numbers
/// are replaced.
pub(crate) fn set_parameters(parameters: Option<&[u8]>) {
    PARAMETERS.set(parameters.map(<[u8]>::to_vec));
}

/// A handshake's transport parameters, as they will be sent.
pub(super) fn parameters(own: Vec<u8>) -> Vec<u8> {
    let Some(instead) = PARAMETERS.take() else {
        return own;
    };
    let numbers: Vec<u64> = entries(&instead).map(|(number, _)| number).collect();
    let kept = entries(&own).filter(|(number, _)| !numbers.contains(number));
    let mut parameters: Vec<u8> = kept.flat_map(|(_, entry)| entry).copied().collect();
    parameters.extend_from_slice(&instead);
    parameters
}

/// RFC 9000 §18: number, length, value; ends at what does not parse.
fn entries(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let (number, size) = super::version::varint(bytes)?;
        let (len, len_size) = super::version::varint(bytes.get(size..)?)?;
        let entry = bytes.get(..size.checked_add(len_size)?.checked_add(len)?)?;
        bytes = &bytes[entry.len()..];
        Some((number as u64, entry))
    })
}

/// A packet key whose packets may be replaced.
pub(super) struct Tampered(pub Box<dyn PacketKey>);

impl PacketKey for Tampered {
    fn encrypt(&self, number: u64, buf: &mut [u8], header_len: usize) {
        if let Some(frames) = FRAMES.take() {
            let payload_end = buf.len() - self.0.tag_len();
            let payload = &mut buf[header_len..payload_end];
            let len = frames.len().min(payload.len());
            payload.fill(0);
            payload[..len].copy_from_slice(&frames[..len]);
        }
        self.0.encrypt(number, buf, header_len);
    }

    fn decrypt(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.0.decrypt(number, header, payload)
    }

    limits_of!(0);
}
