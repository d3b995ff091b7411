//! Limits of the Python loop, with unit and reason. The engine's own limits are in its crate.

/// Submission queue entries of a loop's ring, 64 bytes each: a turn that submits more enters the
/// kernel once per that many. The engine's default is for a runtime, of which a process has few.
pub const RING_ENTRIES: u32 = 256;

/// Completion queue entries, 16 bytes each. A burst beyond them waits in the kernel's overflow
/// list.
pub const COMPLETION_ENTRIES: u32 = 2048;

/// Passes over the ready ring between two polls of the kernel. A chain of callbacks (one schedules
/// the next) costs one system call per that many links; each pass is also bounded by the two below.
pub const READY_PASSES_MAX: usize = 64;

/// Callbacks after which no further pass starts before the kernel is polled.
pub const READY_CALLBACKS_MAX: usize = 16 * 1024;

/// Nanoseconds after which no further pass starts before the kernel is polled: how much longer a
/// loaded connection may wait because of ready callbacks, below the noise of a network.
pub const READY_NANOSECONDS_MAX: u64 = 50_000;

/// Callbacks between two clock readings for the limit above: reading the clock costs as much as an
/// empty callback.
pub const READY_CALLBACKS_UNCLOCKED: usize = 8;

/// Interval at which the interpreter is offered to waiting threads: less than the five milliseconds
/// after which they request it (`sys.getswitchinterval`).
pub const HOLD_NANOSECONDS: u64 = 1_000_000;

/// If less time than this passed between two clock readings in a batch of callbacks, the next one
/// comes after twice as many callbacks, at most [`LOOK_CALLBACKS_MAX`]: a reading costs as much as
/// an empty callback.
pub const LOOK_NANOSECONDS: u64 = 50_000;

/// See [`LOOK_NANOSECONDS`].
pub const LOOK_CALLBACKS_MAX: usize = 64;

/// Completions dispatched per turn before callbacks run, so that a flood of them cannot delay
/// callbacks; the rest stay in the completion queue.
pub const EVENTS_PER_TURN: usize = 4096;

/// Number of timers below which cancelled ones are not swept (asyncio's
/// `_MIN_SCHEDULED_TIMER_HANDLES`).
pub const TIMERS_SWEEP_MIN: usize = 100;

/// The longest wait in seconds: asyncio's own cap, so that a clock jump cannot park a loop forever.
pub const WAIT_SECONDS_MAX: u64 = 24 * 3600;

/// Maximum sleep in milliseconds while a step waits for memory: short, but no spinning.
pub const OWED_RETRY_MILLISECONDS: u64 = 2;

/// Bytes that may be copied without checking the available memory: no more than the loop itself
/// needs.
pub const COPIED_BYTES_UNCHECKED: usize = 16 * 1024;

/// Entries of the ready ring whose memory is kept after a burst (24 bytes each).
pub const READY_KEPT: usize = 16 * 1024;

/// Messages of other threads whose memory is kept (8 bytes each).
pub const MESSAGES_KEPT: usize = 16 * 1024;

/// Bytes in a transport's queue above which its protocol is paused (asyncio's default).
pub const WRITE_HIGH_WATER: usize = 64 * 1024;

/// Queued bytes from which a transport tries send(2) at once instead of at the end of the turn: the
/// data is still in the cache, and the peer need not wait.
pub const WRITE_AT_ONCE: usize = 16 * 1024;

/// Turns with writes before a stream gathers them: an exchange of a few messages is sent as by
/// asyncio, whatever its callbacks wait for. TLS has used two of them when the application first
/// writes.
pub const OPENING_TURNS: u8 = 8;

/// Bytes up to which several queued buffers are copied into one: cheaper than a vectored send.
pub const WRITE_JOIN_MAX: usize = 32 * 1024;

/// Buffers per vectored send(2) of a transport.
pub const WRITE_VECTOR_MAX: usize = 64;

/// Writes after a lost connection that are not logged; asyncio's
/// `LOG_THRESHOLD_FOR_CONNLOST_WRITES`.
pub const LOST_WRITES_BEFORE_WARNING: u32 = 5;

/// Receive size while messages are small; up to this size they are received on the stack and copied
/// into an object of exact size.
pub const READ_CHUNK_MIN: usize = 16 * 1024;

/// Receive size at the start of bulk data.
pub const READ_CHUNK_BULK: usize = 64 * 1024;

/// Maximum receive size: asyncio's `max_size`.
pub const READ_CHUNK_MAX: usize = 256 * 1024;

/// Bytes from which a `readexactly()` that waits has them received into its result: one read of small messages.
pub const STREAM_FILL_MIN: usize = READ_CHUNK_MIN;

/// Bytes of that result that are allocated before they arrive; it then grows by doubling.
pub const STREAM_FILL_STEP: usize = 1024 * 1024;

/// Received pieces up to this many bytes are joined while they wait to be read: an object of its own costs more than
/// the copy.
pub const STREAM_JOINED_MAX: usize = 4 * 1024;

/// Full receives in a row of one connection before others run.
pub const READS_PER_EVENT: usize = 4;

/// Receives of [`READ_CHUNK_MIN`] or more in a row that make a connection a bulk one.
pub const FULL_READS_TO_BULK: u8 = 2;

/// Small receives in a row after which a bulk connection is interactive again.
pub const SMALL_READS_TO_INTERACTIVE: u8 = 8;

/// Bytes of ciphertext queued for a paused application before the lower transport is paused:
/// asyncio's `FLOW_CONTROL_HIGH_WATER_SSL_READ`.
pub const TLS_READ_HIGH_WATER: usize = 256 * 1024;

/// Bytes not yet passed to the lower transport above which a TLS application is paused: asyncio's
/// `FLOW_CONTROL_HIGH_WATER_SSL_WRITE`.
pub const TLS_WRITE_HIGH_WATER: usize = 512 * 1024;

/// Bytes of plaintext encrypted before the ciphertext is sent: whole records, and few enough to be
/// in the cache by then.
pub const TLS_WRITE_PART: usize = 256 * 1024;

/// Bytes of plaintext in one record (RFC 8446, 5.1): what may arrive in addition to queued data.
pub const TLS_RECORD_MAX: usize = 16 * 1024;

/// Seconds before a listener without free descriptors retries: asyncio's `ACCEPT_RETRY_DELAY`.
pub const ACCEPT_RETRY_SECONDS: u32 = 1;

/// Empty contexts kept by a loop for its callbacks: more than one only for nested runs.
pub const CONTEXTS_KEPT: usize = 8;

/// Freed handles of each type that a process keeps for the next ones, 112 bytes each: what a pass of
/// a busy server needs.
pub const HANDLES_KEPT: usize = 128;

/// Maximum length of a received datagram; longer ones are truncated. asyncio's `max_size`, which
/// only a Unix datagram can exceed.
pub const DATAGRAM_BYTES_MAX: usize = 256 * 1024;

/// Receive errors in a row, with the socket still readable, after which receiving pauses.
pub const RECEIVE_ERRORS_BEFORE_PAUSE: u32 = 8;

/// The first such pause, doubled each time, and the longest, in milliseconds: as rare as a
/// listener's retries.
pub const RECEIVE_PAUSE_MILLISECONDS: u64 = 1;
pub const RECEIVE_PAUSE_MILLISECONDS_MAX: u64 = 1000;

/// Datagrams received per system call, and by one endpoint before others run.
pub const DATAGRAMS_PER_EVENT: usize = 32;

/// Datagrams delivered by one endpoint before other callbacks run: a batch may hold GRO batches
/// of 64 each.
pub const DATAGRAMS_PER_STEP: usize = 128;

/// Datagrams gathered in a turn before they are sent: what one message can carry.
pub const GATHERED_DATAGRAMS_MAX: usize = 64;

/// Bytes gathered in a turn before they are sent.
pub const GATHERED_BYTES_MAX: usize = 64 * 1024;

/// Length up to which datagrams are gathered: for longer ones a system call each costs little, and
/// their errors are reported at once.
pub const GATHERED_DATAGRAM_BYTES_MAX: usize = 16 * 1024;

/// How long a thread waits for another one to leave a cell of the loop: without the interpreter
/// lock, and only if a loop is used from two threads. The holder exits after a few instructions
/// unless preempted.
#[cfg(Py_GIL_DISABLED)]
pub const CELL_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// Attempts to enter such a cell between two yields of the processor.
#[cfg(Py_GIL_DISABLED)]
pub const CELL_SPINS: u32 = 64;

/// GRO batches that a QUIC endpoint requests per system call.
pub const QUIC_BATCHES_PER_CALL: usize = 8;

/// GRO batches received before it answers, and before other callbacks run: half a megabyte. A
/// turn's data is in memory up to three times: as received, decrypted, and as objects. Twice as
/// much costs more than twice the turns.
pub const QUIC_BATCHES_PER_TURN: usize = 8;

/// A turn or a flush of QUIC that is shorter keeps the interpreter: other threads wait longer for
/// most calls into C.
pub const QUIC_BRIEF_RUN: std::time::Duration = std::time::Duration::from_micros(50);

/// Bytes of a stream per event: one GRO batch.
pub const QUIC_EVENT_BYTES: usize = 64 * 1024;

/// Bytes in the events taken at once.
pub const QUIC_EVENTS_BYTES: usize = 1024 * 1024;

/// Handshakes in progress from which on clients must validate their addresses, if a server leaves
/// that to us.
pub const QUIC_HANDSHAKES_BEFORE_RETRY: usize = 128;

/// Default limit of a server's connections: what a server of any size has memory for.
pub const QUIC_CONNECTIONS_MAX: usize = 65_536;

/// Polling interval of a thread that waits for a loop to return from the kernel.
pub const VISIT_PAUSE: std::time::Duration = std::time::Duration::from_micros(50);

/// How long it polls before it is an error that the loop does not return.
pub const VISIT_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// How long the loop waits for such threads: each needs a moment, once it runs.
pub const VISITORS_WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(10);

/// Failed handshakes reported at a time by an endpoint without a socket: a flood is counted, a few
/// are named.
pub const QUIC_FAILURES_MAX: usize = 64;

/// Bytes of a message's body that HTTP/3 queues for the application, before the stream is no longer
/// read and QUIC's flow control stops the peer: what a handler takes in one or two reads.
pub const H3_BODY_BYTES: usize = 256 * 1024;

/// Bytes read from a stream at a time: one GRO batch.
pub const H3_READ_BYTES: usize = 64 * 1024;

/// What a piece of a body counts in addition to its length, in bytes: its place in the queue.
pub const H3_PIECE_BYTES: usize = 64;

/// Bytes of a piece of a body up to which it is copied: a slice would keep the whole received batch.
pub const H3_COPIED_BYTES: usize = 512;

/// Longer pieces that may wait uncopied, whatever else is in their batches: at most 1 MiB of those.
pub const H3_UNCOPIED_PIECES: usize = 16;

/// Bytes of a body side by side in a batch from which on further pieces are not copied: an eighth of a
/// full batch, so that a body that is not read keeps a small multiple of its length.
pub const H3_DENSE_BYTES: usize = 8 * 1024;

/// Bytes between two pieces that are still side by side: the headers of a packet and of its frames.
pub const H3_PIECE_GAP_BYTES: usize = 256;

/// Interim responses kept for the application; servers send one or two.
pub const H3_INTERIM_MAX: usize = 16;

/// Bytes of HTTP/3's own streams (QPACK, control) without credit from the peer, before the
/// connection is closed: it asks for answers and does not receive them.
pub const H3_CONTROL_BYTES_MAX: usize = 256 * 1024;

/// Bytes of HTTP datagrams of one exchange that wait for the application; past it the oldest are
/// dropped, as QUIC's are.
pub const H3_DATAGRAM_BYTES: usize = 256 * 1024;

/// What such a datagram counts in addition to its length, in bytes: its place in the queue.
pub const H3_DATAGRAM_EACH_BYTES: usize = 64;

/// How long operations on files complete at once in one turn: later ones begin in the next.
pub const AT_ONCE_NANOSECONDS: u64 = 1_000_000;

/// Bytes that one operation reads from a file: a cached piece is copied in about 100 µs, the engine's own
/// bound (`ringloop::embed::limits::CACHED_READ_BYTES`).
pub const FILE_PIECE_BYTES: usize = 1 << 20;

/// Pieces of a cached file that are copied before the loop runs its callbacks: about a millisecond.
pub const FILE_PIECES_PER_TURN: usize = 8;

/// First memory for a file that does not tell its length (procfs, pipes). Files of /proc/sys must be
/// read by one call.
pub const UNTOLD_FILE_BYTES: usize = 64 * 1024;

/// Calls of a stack that the profiler and the watchdog read; a deeper one loses its outermost: more than the
/// interpreter's default recursion limit (1,000) with the loop below it.
pub const STACK_CALLS_MAX: usize = 2048;
