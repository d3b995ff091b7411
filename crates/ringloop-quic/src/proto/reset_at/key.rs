//! Packet keys that rewrite the frames of the extension.

use super::Shared;
use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};
use std::sync::Arc;

/// A key of 1-RTT or 0-RTT packets. Wraps the log's key, which shows the frames on the wire.
pub(crate) struct Translated {
    pub key: Box<dyn PacketKey>,
    pub shared: Arc<Shared>,
}

impl PacketKey for Translated {
    fn encrypt(&self, number: u64, buf: &mut [u8], header_len: usize) {
        let room = self.shared.room();
        let end = buf.len() - self.key.tag_len();
        let payload = &mut buf[header_len..end];
        let mut state = self.shared.state();
        state.note_heads(number, &payload[..payload.len() - room]);
        if room > 0 {
            state.expand(payload, room);
        }
        drop(state);
        self.key.encrypt(number, buf, header_len);
    }

    fn decrypt(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(number, header, payload)?;
        self.shared.state().on_opened(self.shared.side, payload);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len() + self.shared.room()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}
