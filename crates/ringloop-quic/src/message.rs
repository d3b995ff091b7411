//! Datagrams and messages between a core and the network.

use crate::proto;
use bytes::BytesMut;
use ringloop::net::Message;
use std::net::{IpAddr, SocketAddr};

/// A received datagram.
#[derive(Debug)]
pub struct Datagram {
    /// The sender.
    pub source: SocketAddr,
    /// The local address that it was sent to, if known.
    pub local_ip: Option<IpAddr>,
    /// Its ECN bits; 0 if unknown.
    pub ecn: u8,
    /// The payload, which is decrypted in place.
    pub bytes: BytesMut,
}

impl Datagram {
    /// The datagrams of a received message: one, or a GRO batch. None if it was truncated, is
    /// empty, or has no IP source address.
    pub fn received(message: &Message<'_>) -> impl Iterator<Item = Self> {
        Self::received_by(message, |payload| Some(BytesMut::from(payload)))
    }

    /// The same, copied by `copy` into separate memory; `None` drops a datagram, like packet loss.
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

    /// The datagrams of a GRO batch: each of `segment_len` bytes except the last, which may be
    /// shorter.
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

/// A message to send: the buffer's bytes, to one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The destination.
    pub destination: SocketAddr,
    /// The source address to send from, if it matters.
    pub source: Option<IpAddr>,
    /// The ECN bits.
    pub ecn: u8,
    /// Length of each datagram except the last, which may be shorter; `None`: a single datagram.
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
