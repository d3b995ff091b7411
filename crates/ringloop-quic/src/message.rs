//! Datagrams and messages between a core and the network; memory for received batches.

use crate::limits::{BATCHES_POOLED, POOLED_BATCH_BYTES_MIN};
use crate::proto;
use bytes::{Bytes, BytesMut};
use ringloop::embed::sys::reserve;
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
        let batch = source.and_then(|source| {
            Some(Self {
                source,
                local_ip: message.local_ip(),
                ecn: message.ecn(),
                bytes: copy(payload)?,
            })
        });
        batch.into_iter().flat_map(move |batch| batch.segments(segment_len))
    }

    /// The datagrams of a GRO batch: each of `segment_len` bytes except the last, which may be
    /// shorter.
    pub fn segments(self, segment_len: usize) -> impl Iterator<Item = Self> {
        let Self { source, local_ip, ecn, bytes: mut rest } = self;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let bytes = rest.split_to(segment_len.clamp(1, rest.len()));
            Some(Self { source, local_ip, ecn, bytes })
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

/// Memory for copies of long GRO batches, reused once it is unreferenced. The allocator would return
/// it to the kernel after each turn, and every page would fault again in the next one.
#[derive(Debug, Default)]
pub struct BatchMemory(Vec<BytesMut>);

impl BatchMemory {
    /// Without memory.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Copies a batch; `None` without memory, or while less than half of the allocator's reserve is
    /// free: the batch counts as lost, and its sender retransmits.
    pub fn copy(&mut self, payload: &[u8]) -> Option<BytesMut> {
        self.copy_if(payload, |block| !reserve::holds(block) || !reserve::is_low())
    }

    /// With separate memory only if `is_usable`.
    fn copy_if(
        &mut self,
        payload: &[u8],
        is_usable: impl FnOnce(*const u8) -> bool,
    ) -> Option<BytesMut> {
        let Self(pool) = self;
        let free = |memory: &mut BytesMut| memory.try_reclaim(payload.len());
        // Unread bytes of a short batch must not pin a long buffer.
        let pooled = (payload.len() >= POOLED_BATCH_BYTES_MIN)
            .then(|| pool.iter_mut().position(free).unwrap_or(pool.len()));
        let at = match pooled {
            Some(at) if at < BATCHES_POOLED => at,
            // Short, or readers keep much of the pool referenced.
            _ => {
                let mut copy = allocated(payload.len(), is_usable)?;
                copy.extend_from_slice(payload);
                return Some(Bytes::from(copy).into());
            }
        };
        if at == pool.len() {
            let mut memory = allocated(usize::from(u16::MAX), is_usable)?;
            // `Bytes` takes over a full vector without a copy.
            memory.resize(memory.capacity(), 0);
            let mut memory = BytesMut::from(Bytes::from(memory));
            memory.clear();
            pool.push(memory);
        }
        let memory = &mut pool[at];
        memory.extend_from_slice(payload);
        Some(memory.split())
    }
}

fn allocated(len: usize, is_usable: impl FnOnce(*const u8) -> bool) -> Option<Vec<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(len).ok()?;
    is_usable(memory.as_ptr()).then_some(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: [u8; 100] = [1; 100];
    static LONG: [u8; 40_000] = [2; 40_000];

    #[test]
    fn batches_are_dropped_while_the_reserve_is_low() {
        let (low, enough) = (|_: *const u8| false, |_: *const u8| true);
        let mut memory = BatchMemory::new();
        for payload in [&SHORT[..], &LONG] {
            assert_eq!(memory.copy_if(payload, low), None);
        }
        let first = memory.copy_if(&LONG, enough).unwrap();
        assert_eq!(memory.copy_if(&LONG, low), None, "the first is referenced");
        assert_eq!(first, LONG[..]);
        drop(first);
        // Reused memory takes nothing from the reserve.
        assert_eq!(memory.copy_if(&LONG, low).unwrap(), LONG[..]);
        assert_eq!(memory.copy_if(&SHORT, enough).unwrap(), SHORT[..]);
        // More than are pooled.
        let all: Vec<_> =
            (0..2 * BATCHES_POOLED).map(|_| memory.copy_if(&LONG, enough).unwrap()).collect();
        assert!(all.iter().all(|copy| copy == &LONG[..]));
        assert_eq!(memory.0.len(), BATCHES_POOLED);
    }
}
