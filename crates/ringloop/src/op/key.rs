//! Keys of operations in flight.
//!
//! Owns: [`Key`]. Called by: the in-flight table, which makes keys; the ring, whose completions carry
//! them.

/// Generations are 24 bits wide: they share `user_data` with the index and the kind.
pub(crate) const GENERATION_MASK: u32 = (1 << 24) - 1;

/// Names an operation in flight; stale once its last completion has been delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// The operation's `user_data`: kind (8 bits, 0 here), generation (24), index (32).
    pub(crate) fn user_data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_user_data(user_data: u64) -> Self {
        let generation = (user_data >> 32) as u32 & GENERATION_MASK;
        Self { index: user_data as u32, generation }
    }
}
