//! The name of a connection of a core.

use ringloop::embed::slab::Key;

/// Names a connection of a core, also after it is over: numbers are not given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub(super) Key);

impl Handle {
    /// A small number, which connections that live at the same time do not share.
    pub fn index(self) -> usize {
        self.0.index as usize
    }

    /// One number for both halves, for those who keep handles outside of Rust.
    pub fn to_bits(self) -> u64 {
        u64::from(self.0.generation) << 32 | u64::from(self.0.index)
    }

    /// The handle of such a number. A number that was made up names no connection, or another one.
    pub fn from_bits(bits: u64) -> Self {
        Self(Key {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        })
    }
}
