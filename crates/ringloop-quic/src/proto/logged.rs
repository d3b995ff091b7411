//! Packet keys that show each packet in the clear to the connection's log.

use super::limits_of::limits_of;
use crate::qlog::{self, Log};
use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};
use std::sync::Arc;

/// Where a key's packets are told.
pub(super) enum To {
    /// To this log.
    Log(Arc<Log>),
    /// To the log of the connection that is being accepted: a server's first key is older than its connection.
    Accepted,
}

/// A packet key, and who hears of its packets.
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
