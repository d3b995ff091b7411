//! What goes between a core and the network.

use crate::proto;
use bytes::BytesMut;
use ringloop::net::Message;
use std::net::{IpAddr, SocketAddr};

/// A datagram as it came from the network.
#[derive(Debug)]
pub struct Datagram {
    /// Who sent it.
    pub source: SocketAddr,
    /// Which of this machine's addresses it was sent to, where that is known.
    pub local_ip: Option<IpAddr>,
    /// Its two bits of congestion notification; 0 where they are not known.
    pub ecn: u8,
    /// Its bytes, which are decrypted in place.
    pub bytes: BytesMut,
}

impl Datagram {
    /// What a message from the kernel holds: one datagram, or a train of them. None where it was cut or is empty, or
    /// where its source is no address of IP.
    pub fn received(message: &Message<'_>) -> impl Iterator<Item = Self> {
        Self::received_by(message, |payload| Some(BytesMut::from(payload)))
    }

    /// The same, copied by `copy` into memory of its own; none where it says `None`, as if they were lost.
    pub fn received_by(
        message: &Message<'_>,
        copy: impl FnOnce(&[u8]) -> Option<BytesMut>,
    ) -> impl Iterator<Item = Self> {
        let payload = message.payload;
        let segment_len = message.segment_len().unwrap_or(payload.len());
        let is_whole = !message.is_cut() && !payload.is_empty();
        let source = message.source.to_std().filter(|_| is_whole);
        let train = source.and_then(|source| {
            Some(Self {
                source,
                local_ip: message.local_ip(),
                ecn: message.ecn(),
                bytes: copy(payload)?,
            })
        });
        train
            .into_iter()
            .flat_map(move |train| train.segments(segment_len))
    }

    /// The datagrams of a train that came as one: each of `segment_len` bytes but for the last, which may be shorter.
    pub fn segments(self, segment_len: usize) -> impl Iterator<Item = Self> {
        let Self {
            source,
            local_ip,
            ecn,
            bytes: mut rest,
        } = self;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let bytes = rest.split_to(segment_len.clamp(1, rest.len()));
            Some(Self {
                source,
                local_ip,
                ecn,
                bytes,
            })
        })
    }
}

/// What is to be sent: the buffer's bytes, to one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub destination: SocketAddr,
    /// The address that it has to leave from, where that matters.
    pub source: Option<IpAddr>,
    /// The two bits of congestion notification.
    pub ecn: u8,
    /// How long each datagram is, but for the last, which may be shorter; `None`: there is one.
    pub segment_len: Option<usize>,
}

impl From<&proto::Transmit> for Transmit {
    fn from(transmit: &proto::Transmit) -> Self {
        Self {
            destination: transmit.destination,
            source: transmit.src_ip,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            segment_len: transmit.segment_size,
        }
    }
}
