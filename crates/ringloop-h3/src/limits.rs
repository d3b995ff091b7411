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

/// Bytes of a field section that we accept by default, counted as `SETTINGS_MAX_FIELD_SECTION_SIZE` counts: what nginx and
/// Chromium allow in a few large cookies, with room to spare.
pub const FIELD_SECTION_BYTES_MAX: u64 = 64 << 10;

/// Fields of a section by default; real requests have some 30.
pub const FIELDS_MAX: usize = 256;

/// Streams that may wait for the peer's encoder stream, by default.
pub const BLOCKED_STREAMS_MAX: u64 = 16;

/// Bytes of a blocked stream that are kept when the caller delivers them all the same; past it the connection is closed.
pub const BLOCKED_BYTES_MAX: usize = 256 << 10;

/// Entries of SETTINGS; some ten are in use.
pub const SETTINGS_MAX: usize = 64;

/// Bytes of a frame of the control stream: [`SETTINGS_MAX`] entries of two integers.
pub const CONTROL_FRAME_BYTES_MAX: u64 = 16 * SETTINGS_MAX as u64;

/// Unidirectional streams of the peer whose type has not arrived.
pub const UNTYPED_STREAMS_MAX: usize = 256;

/// Cancelled requests in excess of answered ones, by default.
pub const RESETS_MAX: u32 = 1000;

/// Frames without effect (unknown, empty, repeated) by default, beyond those of [`IDLE_FRAMES_PER_MESSAGE`].
pub const IDLE_FRAMES_MAX: u32 = 2000;

/// Frames without effect that each message, and each part of a body, allows: greasing sends one or two.
pub const IDLE_FRAMES_PER_MESSAGE: u32 = 16;

/// Priorities kept for requests that have not arrived; the oldest gives way.
pub const PRIORITIES_EARLY_MAX: usize = 128;

/// Bytes of a body that are copied behind what was staged for their stream; more are sent where they are.
pub const COPY_BYTES_MAX: usize = 512;
