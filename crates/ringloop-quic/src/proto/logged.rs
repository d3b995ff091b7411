//! Packet keys that write each packet in the clear to the connection's log.

use super::limits_of::limits_of;
use crate::qlog::{self, Log};
use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};
use std::sync::Arc;

/// The log of a key's packets.
pub(super) enum To {
    /// This log.
    Log(Arc<Log>),
    /// The log of the connection being accepted: a server's first key exists before its connection.
    Accepted,
}

/// A packet key with its log.
pub(super) struct Logged {
    pub key: Box<dyn PacketKey>,
    pub to: To,
}

impl PacketKey for Logged {
    fn encrypt(&self, number: u64, buf: &mut [u8], header_len: usize) {
        if let To::Log(log) = &self.to {
            let (header, sealed) = buf.split_at(header_len);
            let payload = &sealed[..sealed.len() - self.key.tag_len()];
            log.sent(number, header, payload, self.key.tag_len());
        }
        self.key.encrypt(number, buf, header_len);
    }

    fn decrypt(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(number, header, payload)?;
        let accepted = qlog::current();
        let log = match &self.to {
            To::Log(log) => Some(log),
            To::Accepted => accepted.as_ref(),
        };
        if let Some(log) = log {
            log.received(number, header, payload, self.key.tag_len());
        }
        Ok(())
    }

    limits_of!(key);
}
