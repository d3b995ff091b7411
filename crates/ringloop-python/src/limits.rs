//! Every bound of the Python loop, with its unit and its reason. The engine's own are in its crate.

/// Submission queue entries of a loop's ring, 64 bytes each: a turn that submits more enters the kernel once in so
/// many. The engine's own default is for a runtime, of which a process has few.
pub const RING_ENTRIES: u32 = 256;

/// Completion queue entries, 16 bytes each. What a burst brings beyond them waits in the kernel's overflow list.
pub const COMPLETION_ENTRIES: u32 = 2048;

/// Passes over the ready ring between two looks at the kernel. A chain of callbacks (one schedules
/// the next) costs one system call in so many links; each pass is still bounded by the two below.
pub const READY_PASSES_MAX: usize = 64;

/// Callbacks after which no further pass begins before the kernel was asked.
pub const READY_CALLBACKS_MAX: usize = 16 * 1024;

/// Nanoseconds after which no further pass begins before the kernel was asked: what a loaded
/// connection may wait longer because of ready callbacks, below the noise of a network.
pub const READY_NANOSECONDS_MAX: u64 = 50_000;

/// Callbacks between two readings of the clock for the bound above: reading it costs as much as an
/// empty callback.
pub const READY_CALLBACKS_UNCLOCKED: usize = 8;

/// Between two offers of the interpreter to threads that wait for it: less than the five milliseconds after which they ask
/// (`sys.getswitchinterval`).
pub const HOLD_NANOSECONDS: u64 = 1_000_000;

/// Where so many nanoseconds have not passed between two looks at the clock in a batch of callbacks, the next one comes
/// after twice as many callbacks, at most [`LOOK_CALLBACKS_MAX`]: a look costs as much as an empty callback.
pub const LOOK_NANOSECONDS: u64 = 50_000;

/// See [`LOOK_NANOSECONDS`].
pub const LOOK_CALLBACKS_MAX: usize = 64;

/// Completions taken over in one turn before callbacks run, so that a flood of them cannot hold
/// callbacks up; the rest stay in the completion queue.
pub const EVENTS_PER_TURN: usize = 4096;

/// Timers below which cancelled ones are not swept (as asyncio's `_MIN_SCHEDULED_TIMER_HANDLES`).
pub const TIMERS_SWEEP_MIN: usize = 100;

/// The longest wait, in seconds: asyncio's own cap, so that a clock jump cannot park a loop for ever.
pub const WAIT_SECONDS_MAX: u64 = 24 * 3600;

/// Milliseconds for which a loop sleeps at most while it owes something that there was no memory for: a moment, and
/// no reason to spin.
pub const OWED_RETRY_MILLISECONDS: u64 = 2;

/// Bytes that may be copied without a look at the memory there is: no more than what the loop needs for itself.
pub const COPIED_BYTES_UNCHECKED: usize = 16 * 1024;

/// Entries of the ready ring whose memory is kept when a burst is over (24 bytes each).
pub const READY_KEPT: usize = 16 * 1024;

/// Messages of other threads whose memory is kept when they are taken (8 bytes each, in two queues).
pub const MESSAGES_KEPT: usize = 16 * 1024;

/// Bytes in a transport's queue above which its protocol is told to pause (asyncio's default).
pub const WRITE_HIGH_WATER: usize = 64 * 1024;

/// Bytes in the queue from which a transport tries send(2) at once instead of at the end of the turn:
/// the data is still in the cache, and the peer need not wait.
pub const WRITE_AT_ONCE: usize = 16 * 1024;

/// Turns in which a stream is written to before writes are gathered: an opening of a few messages goes out as asyncio's
/// does, whatever its callbacks wait for. TLS has used two of them when the program first writes.
pub const OPENING_TURNS: u8 = 8;

/// Bytes up to which several queued buffers are copied into one: cheaper than a vectored send.
pub const WRITE_JOIN_MAX: usize = 32 * 1024;

/// Buffers one vectored send(2) of a transport carries.
pub const WRITE_VECTOR_MAX: usize = 64;

/// Writes after a connection was lost that go unnoticed; asyncio's
/// `LOG_THRESHOLD_FOR_CONNLOST_WRITES`.
pub const LOST_WRITES_BEFORE_WARNING: u32 = 5;

/// Bytes that a receive asks for while messages are small; up to here they are received on the stack
/// and copied into an exact object.
pub const READ_CHUNK_MIN: usize = 16 * 1024;

/// Bytes that the first receive of bulk data asks for.
pub const READ_CHUNK_BULK: usize = 64 * 1024;

/// Bytes that a receive asks for at most: as asyncio's `max_size`.
pub const READ_CHUNK_MAX: usize = 256 * 1024;

/// Full receives in a row of one connection before others get their turn.
pub const READS_PER_EVENT: usize = 4;

/// Receives of [`READ_CHUNK_MIN`] and more in a row that make a connection a bulk one.
pub const FULL_READS_TO_BULK: u8 = 2;

/// Small receives in a row after which a bulk connection is interactive again.
pub const SMALL_READS_TO_INTERACTIVE: u8 = 8;

/// Bytes of ciphertext that wait for a paused user before the lower transport is told to stop reading:
/// asyncio's `FLOW_CONTROL_HIGH_WATER_SSL_READ`.
pub const TLS_READ_HIGH_WATER: usize = 256 * 1024;

/// Bytes that a lower transport was not given yet above which a user of TLS is told to pause: asyncio's
/// `FLOW_CONTROL_HIGH_WATER_SSL_WRITE`.
pub const TLS_WRITE_HIGH_WATER: usize = 512 * 1024;

/// Bytes of plaintext that are encrypted before the ciphertext is sent: whole records, and few enough
/// to be in the cache when they are.
pub const TLS_WRITE_PART: usize = 256 * 1024;

/// Bytes of plaintext in one record (RFC 8446, 5.1): what may come besides what waits.
pub const TLS_RECORD_MAX: usize = 16 * 1024;

/// Seconds before a listener that found no descriptor tries again: asyncio's `ACCEPT_RETRY_DELAY`.
pub const ACCEPT_RETRY_SECONDS: u32 = 1;

/// Empty contexts that a loop keeps for its callbacks: more than one only when runs are nested.
pub const CONTEXTS_KEPT: usize = 8;

/// Bytes of a datagram that are received; a longer one is cut. asyncio's `max_size`, which only a Unix
/// datagram can exceed.
pub const DATAGRAM_BYTES_MAX: usize = 256 * 1024;

/// Errors in a row that leave a datagram socket readable, after which receiving pauses.
pub const RECEIVE_ERRORS_BEFORE_PAUSE: u32 = 8;

/// The first such pause, doubled each time, and the longest, in milliseconds: as rare as a listener's tries.
pub const RECEIVE_PAUSE_MILLISECONDS: u64 = 1;
pub const RECEIVE_PAUSE_MILLISECONDS_MAX: u64 = 1000;

/// Datagrams received in one system call, and by one endpoint before others get their turn.
pub const DATAGRAMS_PER_EVENT: usize = 32;

/// Datagrams that one endpoint delivers before other callbacks get their turn: a batch may hold trains
/// of 64.
pub const DATAGRAMS_PER_STEP: usize = 128;

/// Datagrams that are gathered in a turn before they are sent: what one message can carry.
pub const GATHERED_DATAGRAMS_MAX: usize = 64;

/// Bytes that are gathered in a turn before they are sent.
pub const GATHERED_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a datagram up to which it is gathered with others: with longer ones a system call each
/// costs little, and their errors are told at once.
pub const GATHERED_DATAGRAM_BYTES_MAX: usize = 16 * 1024;

/// How long a thread waits for another one to leave a cell of the loop's: without the interpreter lock,
/// and only where a loop is used from two threads. Who is inside leaves after a few instructions unless
/// the kernel has other plans.
#[cfg(Py_GIL_DISABLED)]
pub const CELL_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// Tries to enter such a cell between two offers of the processor to other threads.
#[cfg(Py_GIL_DISABLED)]
pub const CELL_SPINS: u32 = 64;

/// Trains of datagrams that a QUIC endpoint asks for in one system call.
pub const QUIC_TRAINS_PER_CALL: usize = 8;

/// Trains that it takes before it answers, and before other callbacks get their turn: half a megabyte. What a turn brings is
/// in memory up to three times: as it came, opened, and as objects. Twice as much costs more than twice the turns.
pub const QUIC_TRAINS_PER_TURN: usize = 8;

/// Trains whose memory a thread keeps for the next ones: a turn's.
pub const QUIC_TRAINS_POOLED: usize = 8;

/// Bytes from which on a train is copied there: half of what it can have.
pub const QUIC_TRAIN_POOLED_BYTES: usize = 32 * 1024;

/// Bytes of a stream in one event: a train of datagrams.
pub const QUIC_EVENT_BYTES: usize = 64 * 1024;

/// Bytes in the events that are taken at once.
pub const QUIC_EVENTS_BYTES: usize = 1024 * 1024;

/// Handshakes under way from which on clients have to prove their addresses, where a server leaves that to us.
pub const QUIC_HANDSHAKES_BEFORE_RETRY: usize = 128;

/// Connections of a server, where it says nothing: what a server of any size has memory for.
pub const QUIC_CONNECTIONS_MAX: usize = 65_536;

/// Between two looks of a thread that waits for a loop to come back from the kernel, which it was told to.
pub const VISIT_PAUSE: std::time::Duration = std::time::Duration::from_micros(50);

/// How long it looks before it is an error that the loop does not come back.
pub const VISIT_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// How long the loop stays for such threads: each needs a moment, once it runs.
pub const VISITORS_WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(10);

/// Clients of an endpoint without a socket whose failed handshake is told of at a time: a flood is counted, a few are named.
pub const QUIC_FAILURES_MAX: usize = 64;
