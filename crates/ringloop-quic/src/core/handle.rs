//! Handle of a connection of a core.

use ringloop::embed::slab::Key;

/// Identifies a connection of a core, also after it is closed: handles are not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub(super) Key);

impl Handle {
    /// A small number, unique among live connections.
    pub fn index(self) -> usize {
        self.0.index as usize
    }

    /// The handle as one number, for storage outside of Rust.
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation) << 32 | u64::from(self.0.index)
    }

    /// The handle of such a number. A made-up number refers to no connection, or to another one.
    pub fn from_bits(bits: u64) -> Self {
        Self(Key { index: bits as u32, generation: (bits >> 32) as u32 })
    }
}
