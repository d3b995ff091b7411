//! Every bound of the crate, with its unit and its reason. Those of a connection are defaults of
//! [`crate::config::Transport`].
//!
//! Of what waits to be read, what is counted is its own bytes. It keeps the memory of the train of datagrams in which it came,
//! at most 64 KiB: a peer that puts one short piece into each train makes every piece that waits cost so much. What an honest
//! peer sends fills its trains, and costs what is counted. Who has to bound memory by the byte against peers that are not
//! honest gives the core each datagram in memory of its own ([`crate::core::Core::receive`]).

use std::time::Duration;

/// Bytes of one stream that may wait here to be read, and as many more be on their way: what the peer may
/// send ahead of the reader. 16 ms at 10 Gbit/s, and as much as the Python implementations take.
pub const STREAM_RECEIVE_WINDOW: u64 = 16 << 20;

/// The same for all streams of a connection together, so that one that is not read leaves the others theirs.
pub const RECEIVE_WINDOW: u64 = 24 << 20;

/// What that grows to where readers take it all within a round trip: 5 Gbit/s at 100 ms.
pub const RECEIVE_WINDOW_MAX: u64 = 64 << 20;

/// Bytes of all streams of a connection that are written and not yet acknowledged; past it, writes wait. It follows
/// the congestion window and what the path holds, between these two: more than a fast path's, and less than would take
/// seconds on a slow one.
pub const SEND_WINDOW_MIN: u64 = 1 << 20;

/// See [`SEND_WINDOW_MIN`].
pub const SEND_WINDOW: u64 = 16 << 20;

/// How many times what a path holds without a queue the send window may be: round trips of a radio link take several times
/// the shortest, with nobody's queue the reason.
pub const SEND_WINDOW_PATHS: u64 = 4;

/// How often a client that has moved asks the server for an answer beside the engine's probes: one of so many arrives, unless
/// nothing does.
pub const MOVE_ASKS: u32 = 16;

/// Packets by which it asks where it hears nothing. The server may send three times what they are long together (RFC 9000
/// §8.1): a packet of the least MTU, which its proof of the address has to be.
pub const MOVE_PINGS: u32 = 16;

/// How long it waits before the second time, at the least; three round trips otherwise, and twice as long each time.
pub const MOVE_WAIT_MIN: Duration = Duration::from_millis(50);

/// The longest of these waits: what a path bears that is not known any more.
pub const MOVE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Bytes of small writes of one stream a connection that are gathered into one piece before they count against the
/// send window. Sixteen packets: much fewer pieces, and still in the first-level cache.
pub const STAGED_BYTES: usize = 16 << 10;

/// Streams of a direction that the peer may have open at a time, once it opens many.
pub const STREAMS_MAX: u64 = 100;

/// Streams of a direction that a program can allow the peer at the most: the engine makes a place for each at once, 3 MiB
/// of them.
pub const STREAMS_LIMIT: u64 = 1 << 16;

/// The largest number that QUIC's frames carry (RFC 9000 §16).
pub const NUMBER_MAX: u64 = (1 << 62) - 1;

/// Times are told in milliseconds on the wire: what is less would be none.
pub const TIME_MIN: Duration = Duration::from_millis(1);

/// The longest time that a connection or token is set up with; who wants no end says so by none.
pub const TIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The round-trip times that a connection may begin with.
pub const INITIAL_RTT_MIN: Duration = Duration::from_micros(1);

/// See [`INITIAL_RTT_MIN`].
pub const INITIAL_RTT_MAX: Duration = Duration::from_secs(60);

/// Bytes of buffers for datagrams, and of a socket, at the most: what `setsockopt(2)` takes.
pub const BUFFER_MAX: usize = i32::MAX as usize;

/// Address tokens that a client may get for its next connections: each is sent when the handshake is over.
pub const TOKENS_MAX: u32 = 64;

/// Connections that may be allowed to wait to be accepted.
pub const INCOMING_LIMIT: usize = 1 << 20;

/// Streams of a direction that the peer may have open before it has opened half of them; the engine keeps a place for each
/// that it may open, 45 bytes. With both directions' 56 places its tables are exactly full.
pub const STREAMS_AT_FIRST: u64 = 28;

/// What the number grows by then.
pub const STREAMS_GROWTH: u64 = 4;

/// Bytes of datagrams that wait here to be received; past it the oldest are dropped.
pub const DATAGRAM_RECEIVE_BUFFER: usize = 1 << 20;

/// Bytes of datagrams that wait to be sent; what happens past it is [`crate::Policy`].
pub const DATAGRAM_SEND_BUFFER: usize = 256 << 10;

/// Bytes of datagrams with a deadline that are handed on to be sent while the path may still hold them up, so that they
/// can no longer expire: a few packets, enough for one message of small ones.
pub const EXPIRING_AHEAD_BYTES: usize = 8 << 10;

/// Connections that may wait to be accepted by the program; past it the packets of new clients are dropped without an
/// answer (each refusal would take keys of its own). A client tries again, until its handshake's time is over.
pub const INCOMING_MAX: usize = 1024;

/// Bytes that one connection which waits to be accepted may have sent ahead.
pub const INCOMING_BYTES: u64 = 64 << 10;

/// The same for all of them together.
pub const INCOMING_BYTES_TOTAL: u64 = 16 << 20;

/// Silence after which a connection is given up.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a handshake may take, whatever comes of the peer meanwhile: time for a handful of losses in a row, and a bound on
/// what peers that send a little now and then can hold.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of handshake messages that may wait for one that is missing: a chain of a few certificates.
pub const CRYPTO_BUFFER: usize = 32 << 10;

/// Answers that belong to no connection (version negotiation, Retry, stateless reset, refusals) that may
/// wait to be sent; past it they are dropped, as a network would.
pub const RESPONSES_MAX: usize = 256;

/// Datagrams that workers may have handed to one of them and that it has not taken; past it they are dropped, as the
/// kernel drops what a socket's buffer has no room for.
pub const HANDED_MAX: usize = 1024;

/// Datagrams in one message to the kernel, which takes no more in every version that has `UDP_SEGMENT`.
pub const SEGMENTS_MAX: usize = 64;

/// Bytes in one message to the kernel: a little less than the payload of the longest IPv4 packet.
pub const MESSAGE_BYTES_MAX: usize = 65_000;

/// How long an attempt at one address has before the next one joins it (RFC 8305 §5).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Bytes of a datagram that every path of QUIC carries (RFC 9000 §14).
pub const DATAGRAM_LEN_MIN: usize = 1200;

/// Answers of the network to first datagrams that an endpoint takes before it goes on; more are for the next turn.
pub const ANSWERS_PER_TURN: usize = 64;

/// Trains of datagrams that an endpoint takes before it answers, and before other tasks get their turn.
pub const RECEIVES_PER_TURN: usize = 16;

/// Passes of the loop in which a closed endpoint reads what clients sent before: whoever goes on sending does not keep it.
pub const LAST_READS_MAX: u32 = 512;

/// The time between two of them.
pub const LAST_READ_PAUSE: Duration = Duration::from_millis(1);

/// Messages that an endpoint sends before other tasks get their turn.
pub const TRANSMITS_PER_TURN: usize = 32;

/// Bytes that an endpoint's socket asks the kernel to keep, each way; it grants less where
/// `net.core.rmem_max` says so. A burst of one window's size must not be lost here.
pub const SOCKET_BUFFER: usize = 4 << 20;

/// Sessions that a server stores for resumption, each once: 200 to 2000 bytes.
pub const SESSIONS: usize = 4096;

/// Servers whose sessions a client stores.
pub const SERVER_NAMES: usize = 512;

/// Sessions that a client stores for each of them; a server usually gives two in a handshake.
pub const TICKETS_PER_SERVER: usize = 8;

/// Files of a store of sessions and tokens ([`crate::store::Directory`]): some hundred bytes each.
pub const STORED_ENTRIES: usize = 65_536;

/// Tokens of one server that such a store keeps, and that any store is given in one connection; a server gives two, and
/// as many again to a client that moves.
pub const STORED_TOKENS: usize = 8;

/// What such a store gives back is no older: no TLS session may be (RFC 8446 §4.6.1).
pub const STORED_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
