//! Every limit of the engine, with its unit and its reason.

use crate::sys::datagram::HEAD_LEN;
use std::time::Duration;

/// Submission queue entries. One turn's sends and re-arms fit; a fuller turn submits twice.
pub const RING_ENTRIES: u32 = 1024;

/// Completion queue entries. A burst larger than this spills into the kernel's overflow list, which
/// is correct but ends multishot operations early, so it is generous (16 bytes each).
pub const COMPLETION_ENTRIES: u32 = 8192;

/// Buffers in a loop's shared receive pool: 2 MiB. A turn fills some forty, sends may hold half,
/// and an idle connection owns none.
pub const POOL_BUFFERS: u16 = 128;

/// Pool buffers that sends may hold until their bytes are sent, and no more than half of a smaller
/// pool; buffers of further messages are returned at once. A peer that reads slowly holds the last
/// one sent to it.
pub const HELD_BUFFERS_MAX: usize = POOL_BUFFERS as usize / 2;

/// Bytes in one pool buffer: a TLS record, an HTTP head or a message of 16 KiB, and a little more,
/// so that a longer one is detected. No buffer starts a few bytes after a page boundary, where some
/// CPUs copy slowly (docs/decisions/0022).
pub const POOL_BUFFER_BYTES: u32 = 16 * 1024 + 256;

/// How long a ring keeps the file of a brief poll open, whatever its owner does, before an epoll set
/// watches the descriptor. Most answers of a peer come sooner, and need no system call of the set's.
pub const BRIEF_POLL_MS: u64 = 10;

/// Receives in a row that fill their pool buffer before a sequence switches to large buffers.
pub const FULL_RECEIVES_MAX: u32 = 2;

/// Room of a large buffer: bulk data is received in one call, and is still in a core's second-level
/// cache when it is sent.
pub const LARGE_BUFFER_BYTES: usize = 256 * 1024;

/// Large buffers of a loop, allocated on demand: 4 MiB. One serves all connections that send at
/// once what they received; while all are held, the streams use the pool.
pub const LARGE_BUFFERS: usize = 16;

/// Receives in a row that a pool buffer would have held before a sequence returns to the pool,
/// where an idle connection costs nothing.
pub const SMALL_RECEIVES_MAX: u32 = 8;

/// Received bytes from which a send does not copy: they are sent in place, with the next batch out
/// of a held buffer ([`HELD_BUFFERS_MAX`]), or otherwise by a system call at once.
pub const EAGER_SEND_BYTES_MIN: usize = 8 * 1024;

/// Buffers in a loop's shared pool for datagrams, allocated when the first endpoint receives into
/// it: 2 MiB.
pub const DATAGRAM_POOL_BUFFERS: u16 = 32;

/// Bytes in one buffer for datagrams: the head, and the longest GSO batch that the kernel makes
/// (`UDP_GRO`, 64 KiB). A shorter buffer would truncate it.
pub const DATAGRAM_POOL_BUFFER_BYTES: u32 = HEAD_LEN as u32 + 64 * 1024;

/// Buffers in a loop's pool for bundled receives (`net::Receive::bundled`), allocated on first use:
/// 1 MiB.
pub const BUNDLE_POOL_BUFFERS: u16 = 256;

/// Bytes in one of them: a page, so that little is unused after a short message.
pub const BUNDLE_POOL_BUFFER_BYTES: u32 = 4 * 1024;

/// Buffers in a loop's pool for incremental receives (`net::Receive::incremental`), allocated on
/// first use: 2 MiB.
pub const PIECE_POOL_BUFFERS: u16 = 32;

/// Bytes in one of them, shared by receives of all such streams.
pub const PIECE_POOL_BUFFER_BYTES: u32 = 64 * 1024;

/// Buffers in a loop's pool for single receives (`executor::RecvInto`), allocated on first use.
/// Each is taken from its completion until its reader runs, so there are enough for a large batch
/// of completions; of their 4 MiB only pages that were written to are memory.
pub const SINGLE_POOL_BUFFERS: u16 = 256;

/// Bytes in one of them.
pub const SINGLE_POOL_BUFFER_BYTES: u32 = 16 * 1024;

/// Datagrams that one receive takes at most, for fairness to other descriptors (readiness).
pub const DATAGRAMS_PER_RECEIVE: usize = 16;

/// Connections that listeners may accept in one turn, for fairness to other descriptors.
pub const ACCEPTS_PER_TURN: u32 = 64;

/// How long an accept without a free descriptor or memory waits before it returns the error: an
/// immediate retry would fail the same way, and keep the CPU from tasks that could free some.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that may be queued in one stream of them (`net::Incoming`) before it stops
/// accepting; the others stay in the listener's backlog.
pub const UNTAKEN_CONNECTIONS_MAX: usize = 64;

/// Pool buffers that may be queued in one stream of receives before it stops receiving: an eighth
/// of the pool. If others then find no buffer, their bytes move to memory of their own.
pub const UNTAKEN_RECEIVES_MAX: usize = POOL_BUFFERS as usize / 8;

/// The same for a bundled receive.
pub const UNTAKEN_BUNDLED_MAX: usize = BUNDLE_POOL_BUFFERS as usize / 4;

/// The same for an incremental one, whose pieces are at most a buffer long.
pub const UNTAKEN_PIECES_MAX: usize = PIECE_POOL_BUFFERS as usize / 4;

/// The same for a stream of datagrams.
pub const UNTAKEN_DATAGRAMS_MAX: usize = DATAGRAM_POOL_BUFFERS as usize / 4;

/// Operations that one poll of a task may complete at once: by the system call, opened files that
/// are cached, sleeps past their deadline, and what is available from `sync` between threads. A peer
/// that always has more data must not starve other tasks.
pub const ATTEMPTS_PER_POLL: u32 = 32;

/// Bytes from which `write_all_zero_copy` avoids the copy: below, two completions and the wait for
/// the network cost more (docs/decisions/0010).
pub const ZERO_COPY_BYTES_MIN: usize = 32 * 1024;

/// Tasks polled in one turn before the driver is polled for completions.
pub const TASKS_PER_TURN: usize = 256;

/// For how many of them a yield counts: what yields may compute for long, and timers wait for it.
/// Polling the driver each time would cost ten times the yield.
pub const POLLS_PER_YIELD: usize = 16;

/// Messages from other threads that a loop may have queued. Far above any real backlog, and low
/// enough that a runaway producer gets an error before the machine runs out of memory.
pub const INBOX_MESSAGES: usize = 1 << 24;

/// Buffers one vectored send may carry (`UIO_MAXIOV`, see sendmsg(2)).
pub const SEND_VECTOR_MAX: usize = 1024;

/// How long a closing driver waits for the kernel to release buffers before it leaks them with a
/// message.
pub const DRAIN_TIMEOUT_MS: u64 = 1000;

/// How long a driver that leaves its thread waits for the ring to give back what it has. With what
/// it has then it stays bound.
pub const UNBIND_TIMEOUT_MS: u64 = 100;

/// Most pool threads of a loop: for calls that wait for a disk or a name server, not for the CPU.
pub const BLOCKING_THREADS: usize = 32;

/// Pieces of work that may be queued for a pool thread; beyond it the readiness driver queues
/// requests itself, and `spawn_blocking` waits.
pub const BLOCKING_QUEUE: usize = 1024;

/// How long a pool thread stays idle before it ends.
pub const BLOCKING_IDLE: Duration = Duration::from_secs(10);

/// Cached bytes that one read of a file may copy at once: about 100 µs. A larger read goes to a
/// pool thread (readiness) or through the ring.
pub const CACHED_READ_BYTES: usize = 1 << 20;

/// Bytes from which a read of a file is tried at once on the ring too: a system call costs less
/// than an entry and a turn, but a batch of small reads costs even less.
pub const BULK_READ_BYTES: usize = 1 << 16;

/// Buffers that one vectored read or write may carry (`UIO_MAXIOV`, see readv(2)).
pub const FILE_VECTOR_MAX: usize = 1024;

/// First pause before retrying a connect to a Unix listener with a full backlog, or a datagram to a
/// full Unix socket: the kernel does not report when there is room.
pub const CONNECT_PAUSE_MIN: Duration = Duration::from_micros(500);

/// Longest such pause, reached by doubling: many waiting connects cost next to nothing, and the
/// delay is not noticeable.
pub const CONNECT_PAUSE_MAX: Duration = Duration::from_millis(16);

/// First pause before retrying to reap a child that has ended: a tracer still has it.
pub const REAP_PAUSE_MIN: Duration = Duration::from_millis(1);

/// Longest such pause, reached by doubling.
pub const REAP_PAUSE_MAX: Duration = Duration::from_millis(64);

/// Entries of a directory that one call on a pool thread reads: about one getdents64(2).
pub const DIRECTORY_ENTRIES: usize = 256;

/// Bytes that a polled stream receives at a time, and buffers until they are read.
pub const POLLED_READ_BYTES: usize = 16 * 1024;

/// Bytes that a polled stream buffers while as many are in flight: several TLS records, and a send
/// worth its system call.
pub const POLLED_WRITE_BYTES: usize = 64 * 1024;

/// How long a dropped polled stream goes on sending what was written to it.
pub const POLLED_LINGER_MS: u64 = 10_000;

/// Operations in one link that the ring runs itself; a longer one is run in sequence.
pub const LINKED_MAX: usize = 64;

/// Slots in a ring's table of registered files; further files are used by their descriptors.
pub const REGISTERED_FILES: u32 = 1024;

/// Slots in a ring's table of registered buffers; further buffers are used by their addresses.
pub const REGISTERED_BUFFERS: u32 = 1024;

/// Bytes that `io::BufReader` makes room for before a read, and keeps while it is idle.
pub const BUFFERED_READ_BYTES: usize = 8 * 1024;

/// The longest line or frame that `io` reads unless told otherwise: a peer that sends no end must not
/// fill the memory.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// Bytes that `io::copy` reads at a time at first.
pub const COPY_BYTES_MIN: usize = 16 * 1024;

/// Bytes that it reads at a time once its reads are full.
pub const COPY_BYTES_MAX: usize = 256 * 1024;
