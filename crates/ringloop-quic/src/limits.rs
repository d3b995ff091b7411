//! Every limit of the crate, with unit and reason. Those of a connection are defaults of
//! [`crate::config::Transport`].
//!
//! Unread data is counted by its own length, but may keep the memory of the GRO batch in which it
//! arrived, at most 64 KiB. The engine copies small chunks of streams once their packets are much
//! longer than they are, whatever their batches; of datagrams [`DATAGRAMS_UNCOPIED_MAX`] and some
//! more wait uncopied. An embedder that must bound memory by the byte against malicious peers passes
//! the core each datagram in memory of its own ([`crate::core::Core::receive`]).

use std::time::Duration;

/// Bytes of one stream that may be unread here, while as many more are in flight: what the peer may
/// send ahead of the reader. 16 ms at 10 Gbit/s, and as much as the Python implementations allow.
pub const STREAM_RECEIVE_WINDOW: u64 = 16 << 20;

/// The same for all streams of a connection together, so that one unread stream leaves room for
/// others.
pub const RECEIVE_WINDOW: u64 = 24 << 20;

/// Limit of its growth while readers consume it within a round trip: 5 Gbit/s at 100 ms.
pub const RECEIVE_WINDOW_MAX: u64 = 64 << 20;

/// Bytes of all streams of a connection that are written but not acknowledged; beyond it, writes
/// block. Follows the congestion window and the path's capacity between these two: more than a fast
/// path holds, and less than takes seconds on a slow one.
pub const SEND_WINDOW_MIN: u64 = 1 << 20;

/// See [`SEND_WINDOW_MIN`].
pub const SEND_WINDOW: u64 = 16 << 20;

/// Send window as a multiple of what a path holds without queues: round trips on a radio link can
/// take several times the minimum without any queue.
pub const SEND_WINDOW_PATHS: u64 = 4;

/// How often a client that migrated probes the server in addition to the engine's probes: one of
/// these arrives, unless the path is dead.
pub const MOVE_ASKS: u32 = 16;

/// Packets per probe while nothing is received. The server may send three times their total length
/// (RFC 9000 §8.1), which covers one packet of the minimum MTU, as required for its path challenge.
pub const MOVE_PINGS: u32 = 16;

/// Minimum interval before the second probe; otherwise three round trips, doubled each time.
pub const MOVE_WAIT_MIN: Duration = Duration::from_millis(50);

/// Maximum interval: what an unknown path can bear.
pub const MOVE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Bytes of small writes of one stream per connection that are merged into one chunk before they
/// count against the send window. Sixteen packets: far fewer chunks, and still in the L1 cache.
pub const STAGED_BYTES: usize = 16 << 10;

/// Streams of a direction that the peer may have open at a time, once it opens many.
pub const STREAMS_MAX: u64 = 100;

/// Maximum of streams that an application can allow per direction: the engine allocates state for
/// each at once, 3 MiB in total.
pub const STREAMS_LIMIT: u64 = 1 << 16;

/// The largest number that QUIC's frames carry (RFC 9000 §16).
pub const NUMBER_MAX: u64 = (1 << 62) - 1;

/// Times are sent in milliseconds; anything less would be sent as 0.
pub const TIME_MIN: Duration = Duration::from_millis(1);

/// The longest lifetime of connections and tokens; without a limit use `None`.
pub const TIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Bounds of the initial round-trip time.
pub const INITIAL_RTT_MIN: Duration = Duration::from_micros(1);

/// See [`INITIAL_RTT_MIN`].
pub const INITIAL_RTT_MAX: Duration = Duration::from_secs(60);

/// Maximum size of datagram and socket buffers: what `setsockopt(2)` takes.
pub const BUFFER_MAX: usize = i32::MAX as usize;

/// Address tokens that a client may get for its next connections: each is sent when the handshake
/// completes.
pub const TOKENS_MAX: u32 = 64;

/// Maximum of connections that may be configured to wait for accept.
pub const INCOMING_LIMIT: usize = 1 << 20;

/// Streams of a direction that the peer may have open before it has opened half of them; the engine
/// keeps 45 bytes for each. With the 56 entries of both directions its tables are exactly full.
pub const STREAMS_AT_FIRST: u64 = 28;

/// Factor by which that number grows.
pub const STREAMS_GROWTH: u64 = 4;

/// Bytes of received datagrams that may be queued; beyond it the oldest are dropped.
pub const DATAGRAM_RECEIVE_BUFFER: usize = 1 << 20;

/// Received datagrams that may wait as parts of the batches they came in: more are copied. An
/// application that takes them in each turn meets it rarely.
pub const DATAGRAMS_UNCOPIED_MAX: u64 = 256;

/// Packets between two looks at how many there are.
pub const DATAGRAMS_UNCOPIED_PACKETS: u32 = 64;

/// Bytes of datagrams that may be queued to be sent; beyond it [`crate::Policy`] applies.
pub const DATAGRAM_SEND_BUFFER: usize = 256 << 10;

/// Bytes of datagrams with a deadline that are passed to the engine ahead of time, where they can
/// no longer expire: a few packets, enough for one message of small ones.
pub const EXPIRING_AHEAD_BYTES: usize = 8 << 10;

/// Connections that may wait for accept; beyond it, first packets of new clients are dropped
/// without an answer (each refusal would need keys). Clients retransmit until their handshake times
/// out.
pub const INCOMING_MAX: usize = 1024;

/// Bytes that one connection may send ahead while it waits for accept.
pub const INCOMING_BYTES: u64 = 64 << 10;

/// The same for all of them together.
pub const INCOMING_BYTES_TOTAL: u64 = 16 << 20;

/// Idle time after which a connection is dropped.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Limit for a handshake, whatever the peer sends meanwhile: enough for a handful of losses in a
/// row, and a bound on what slow peers can hold.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of out-of-order handshake messages that may be buffered: a chain of a few certificates.
pub const CRYPTO_BUFFER: usize = 32 << 10;

/// Times that ids were issued in excess of those sent: once for the handshake, and for each retired one. A peer
/// can retire the id of the handshake, that of a preferred address, and each that it was sent.
pub const IDS_UNSENT_MAX: u64 = 8;

/// Packets that belong to no connection (version negotiation, Retry, stateless reset, refusals)
/// that may be queued; beyond it they are dropped, as a network would.
pub const RESPONSES_MAX: usize = 256;

/// Datagrams queued for one worker by the others; beyond it they are dropped, as the kernel drops
/// what a socket's buffer has no room for.
pub const HANDED_MAX: usize = 1024;

/// Datagrams per message: the maximum of every kernel with `UDP_SEGMENT`.
pub const SEGMENTS_MAX: usize = 64;

/// Bytes per message: a little less than the payload of the longest IPv4 packet.
pub const MESSAGE_BYTES_MAX: usize = 65_000;

/// Delay between attempts at several addresses (RFC 8305 §5).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Datagram length that every QUIC path carries (RFC 9000 §14).
pub const DATAGRAM_LEN_MIN: usize = 1200;

/// ICMP errors that an endpoint reads per turn; more are left for the next one.
pub const ANSWERS_PER_TURN: usize = 64;

/// GRO batches that an endpoint receives before it answers and yields to other tasks.
pub const RECEIVES_PER_TURN: usize = 16;

/// Passes of the loop in which a closed endpoint reads what clients sent before; a client that
/// keeps sending does not keep it open.
pub const LAST_READS_MAX: u32 = 512;

/// Pause between two of these passes.
pub const LAST_READ_PAUSE: Duration = Duration::from_millis(1);

/// Messages that an endpoint sends before it yields to other tasks.
pub const TRANSMITS_PER_TURN: usize = 32;

/// Kernel buffer size that an endpoint's socket requests, for each direction; the kernel may grant
/// less (`net.core.rmem_max`). A burst of one window must not be lost here.
pub const SOCKET_BUFFER: usize = 4 << 20;

/// Sessions that a server stores for resumption: 200 to 2000 bytes each.
pub const SESSIONS: usize = 4096;

/// Servers whose sessions a client stores.
pub const SERVER_NAMES: usize = 512;

/// Sessions stored per server; a server usually sends two in a handshake.
pub const TICKETS_PER_SERVER: usize = 8;

/// Files of a session and token store ([`crate::store::Directory`]): some hundred bytes each.
pub const STORED_ENTRIES: usize = 65_536;

/// Tokens of one server that such a store keeps, and that any store gets from one connection; a
/// server sends two, and two more to a client that migrates.
pub const STORED_TOKENS: usize = 8;

/// Maximum age of entries: the limit for TLS sessions (RFC 8446 §4.6.1).
pub const STORED_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Batches whose memory a thread keeps for later ones: those of one turn.
pub const BATCHES_POOLED: usize = 8;

/// Batch size from which that memory is used: half of the maximum.
pub const POOLED_BATCH_BYTES_MIN: usize = 32 * 1024;

/// Delay before retrying a socket after the kernel had no memory to receive from it, or to watch it: an
/// immediate retry would fail the same way. Shorter than the initial probe timeout of a path of 30 ms.
pub const REFUSED_PAUSE: Duration = Duration::from_millis(20);
