//! The kinds of receive buffer pools of a driver.
//!
//! Owns: [`PoolKind`]. Called by: operations that receive into a pool, and the drivers, which create the pools.

use crate::limits;

/// A pool of receive buffers. A loop allocates a pool's memory at the first receive into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// For stream data.
    Streams,
    /// For datagrams with their header, or GRO batches of them.
    Datagrams,
    /// For streams that take several buffers at a time (ring only).
    Bundles,
    /// For streams that share buffers, each using one piece at a time (ring only).
    Pieces,
    /// For single receives (ring only; the readiness driver uses `Streams`).
    Singles,
}

impl PoolKind {
    /// In the order of their numbers.
    pub(crate) const ALL: [Self; 5] =
        [Self::Streams, Self::Datagrams, Self::Bundles, Self::Pieces, Self::Singles];
    pub(crate) const COUNT: usize = Self::ALL.len();

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
