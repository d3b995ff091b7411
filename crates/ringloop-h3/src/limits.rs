//! Every cap of the crate, with its unit and reason.

/// Bytes of the dynamic table that our encoder fills where the peer allows more: past some hundred entries a search costs
/// more than an entry saves.
pub const TABLE_BYTES_MAX: u64 = 4096;

/// Field sections with references to the dynamic table that the peer has not acknowledged; past it sections are encoded
/// without such references, so that a peer that never acknowledges does not let them grow.
pub const SECTIONS_UNACKNOWLEDGED_MAX: usize = 1024;

/// Fields seen lately, of which a second sight is worth a place in the dynamic table.
pub const FIELDS_REMEMBERED: usize = 64;

/// Bytes of an instruction beside its strings: three integers of at most ten bytes.
pub const INSTRUCTION_BYTES_BESIDE_STRINGS: usize = 32;
