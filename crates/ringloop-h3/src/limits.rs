//! Every cap of the crate, with its unit and reason.

/// Bytes of the dynamic table that our encoder uses at most: beyond some hundred entries a search costs more than an
/// entry saves.
pub const TABLE_BYTES_MAX: u64 = 4096;

/// Unacknowledged field sections with references to the dynamic table; beyond it sections are encoded without
/// references, so that a peer that never acknowledges cannot make the records grow.
pub const SECTIONS_UNACKNOWLEDGED_MAX: usize = 1024;

/// Recently seen fields: a field that is seen again is inserted into the dynamic table.
pub const FIELDS_REMEMBERED: usize = 64;

/// Bytes of an instruction without its strings: three integers of at most ten bytes.
pub const INSTRUCTION_BYTES_BESIDE_STRINGS: usize = 32;

/// Bytes of a field section that we accept by default, counted as in `SETTINGS_MAX_FIELD_SECTION_SIZE`: more than
/// nginx and Chromium allow in a few large cookies.
pub const FIELD_SECTION_BYTES_MAX: u64 = 64 << 10;

/// Fields of a section by default; real requests have some 30.
pub const FIELDS_MAX: usize = 256;

/// Streams that may wait for the peer's encoder stream, by default.
pub const BLOCKED_STREAMS_MAX: u64 = 16;

/// Bytes of a blocked stream that are buffered if the caller delivers them nevertheless, by default.
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

/// Bytes of a body that are copied behind the staged data of their stream; longer ones are sent without a copy.
pub const COPY_BYTES_MAX: usize = 512;

/// Sessions of WebTransport at a time, pending or open, by default.
pub const SESSIONS_MAX: usize = 16;

/// Sessions that have ended here but not at the peer; beyond it the oldest is cancelled.
pub const SESSIONS_ENDED_MAX: usize = 16;

/// Ids of ended sessions that are remembered: their late streams are refused at once, others kept for a while.
pub const SESSIONS_REMEMBERED_MAX: usize = 64;

/// Bytes of the reason of a closed session (draft-ietf-webtrans-http3-16 §6).
pub const CLOSE_REASON_BYTES_MAX: usize = 1024;

/// Bytes of an HTTP datagram in a capsule: the UDP maximum. Longer ones are dropped.
pub const DATAGRAM_CAPSULE_BYTES_MAX: u64 = 65_535;

/// Bytes of capsules that a client may send before its session is accepted.
pub const CAPSULE_BYTES_EARLY_MAX: usize = 16 << 10;

/// Bytes discarded after we close a session, before the peer is asked to stop.
pub const BYTES_AFTER_CLOSE_MAX: usize = 64 << 10;

/// Streams that may wait for their session, by default, over all sessions: what a page opens in its first round trip.
pub const EARLY_STREAMS_MAX: usize = 64;

/// Datagrams that may wait for their session, by default, over all sessions.
pub const EARLY_DATAGRAMS_MAX: usize = 64;

/// Bytes of all streams and datagrams that wait for their session, by default.
pub const EARLY_BYTES_MAX: usize = 256 << 10;

/// Sub-protocols read from a request; a longer list is ignored.
pub const PROTOCOLS_MAX: usize = 64;
