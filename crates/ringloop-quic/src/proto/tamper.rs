//! What lets a peer of ours break the rules under valid keys: for fuzzing, never in a build of programs.
//!
//! Owns: what the next packet of this thread carries instead of its frames, and what the next handshake says
//! instead of its transport parameters. Called by: `fuzz` sets, `session` asks.

use super::limits_of::limits_of;
use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};
use std::cell::RefCell;

thread_local! {
    static FRAMES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    static PARAMETERS: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Have the next packet that is sealed carry these frames; what it had is lost, what is left of it is padding.
pub(crate) fn set_frames(frames: Option<&[u8]>) {
    FRAMES.set(frames.map(<[u8]>::to_vec));
}

/// Have the next handshake name these transport parameters beside its own, and instead of those of the same number.
pub(crate) fn set_parameters(parameters: Option<&[u8]>) {
    PARAMETERS.set(parameters.map(<[u8]>::to_vec));
}

/// A handshake's transport parameters, as they are to be sent.
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

/// RFC 9000 §18: number, length, value; what does not parse ends it.
fn entries(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let (number, size) = super::version::varint(bytes)?;
        let (len, len_size) = super::version::varint(bytes.get(size..)?)?;
        let entry = bytes.get(..size.checked_add(len_size)?.checked_add(len)?)?;
        bytes = &bytes[entry.len()..];
        Some((number as u64, entry))
    })
}

/// A packet key whose owner may be made to lie.
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
