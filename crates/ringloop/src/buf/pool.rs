//! The pools of receive buffers that a driver has.
//!
//! Owns: [`PoolKind`]. Called by: operations that receive into a pool, the drivers, which make the pools.

use crate::limits;

/// A pool of receive buffers. A loop owns no memory of one that it never received into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// For bytes of streams.
    Streams,
    /// For datagrams with their head, or GRO batches of them.
    Datagrams,
    /// For streams that take several buffers at a time (ring only).
    Bundles,
    /// For streams that share buffers, each a piece at a time (ring only).
    Pieces,
    /// For single receives (the ring's own; the readiness driver's are of `Streams`).
    Singles,
}

impl PoolKind {
    pub(crate) const COUNT: usize = 5;

    /// The name of its buffer group.
    pub(crate) const fn group(self) -> u16 {
        self as u16
    }

    pub(crate) const fn buffer_count(self) -> u16 {
        match self {
            Self::Streams => limits::POOL_BUFFERS,
            Self::Datagrams => limits::DATAGRAM_POOL_BUFFERS,
            Self::Bundles => limits::BUNDLE_POOL_BUFFERS,
            Self::Pieces => limits::PIECE_POOL_BUFFERS,
            Self::Singles => limits::SINGLE_POOL_BUFFERS,
        }
    }

    pub(crate) const fn buffer_len(self) -> u32 {
        match self {
            Self::Streams => limits::POOL_BUFFER_BYTES,
            Self::Datagrams => limits::DATAGRAM_POOL_BUFFER_BYTES,
            Self::Bundles => limits::BUNDLE_POOL_BUFFER_BYTES,
            Self::Pieces => limits::PIECE_POOL_BUFFER_BYTES,
            Self::Singles => limits::SINGLE_POOL_BUFFER_BYTES,
        }
    }
}
