//! The name of a connection of a core.

/// Names a connection of a core, also after it is over: numbers are not given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl Handle {
    /// A small number, which connections that live at the same time do not share.
    pub fn index(self) -> usize {
        self.slot as usize
    }

    /// One number for both halves, for those who keep handles outside of Rust.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The handle of such a number. A number that was made up names no connection, or another one.
    pub fn from_bits(bits: u64) -> Self {
        Self {
            slot: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}
