//! Every bound of the engine, with its unit and its reason.

use crate::sys::datagram::HEAD_LEN;
use std::time::Duration;

/// Submission queue entries. One turn's sends and re-arms fit; a fuller turn submits twice.
pub const RING_ENTRIES: u32 = 1024;

/// Completion queue entries. A burst larger than this spills into the kernel's overflow list, which
/// is correct but ends multishot operations early, so it is generous (16 bytes each).
pub const COMPLETION_ENTRIES: u32 = 8192;

/// Buffers in a loop's shared receive pool: 2 MiB. A turn fills some forty, half may be lent to sends, and an idle
/// connection owns none of it.
pub const POOL_BUFFERS: u16 = 128;

/// Pool buffers that may be held until their bytes are sent; those of further messages are free at once. A peer that
/// reads slowly holds the one it was sent last.
pub const HELD_BUFFERS_MAX: usize = POOL_BUFFERS as usize / 2;

/// Bytes in one pool buffer: a TLS record, an HTTP head, a message of 16 KiB; and a little more, so that one which is
/// longer shows. No buffer begins a few bytes behind a page's beginning, where some processors copy slowly to
/// (docs/decisions/0022).
pub const POOL_BUFFER_BYTES: u32 = 16 * 1024 + 256;

/// Receives that fill their pool buffer, without one between that does not, after which a sequence of receives goes over
/// to large buffers.
pub const FULL_RECEIVES_MAX: u32 = 2;

/// Bytes that a large buffer has room for: what comes in bulk is received in one call, and is still in a core's
/// second-level cache when it is sent.
pub const LARGE_BUFFER_BYTES: usize = 256 * 1024;

/// Large buffers of a loop, made when they are needed: 4 MiB. One serves all connections that send what they received
/// at once; where all are held, the streams go on with the pool.
pub const LARGE_BUFFERS: usize = 16;

/// Receives in a row that a pool buffer would have held, after which a sequence goes back to the pool, which costs an idle connection nothing.
pub const SMALL_RECEIVES_MAX: u32 = 8;

/// Received bytes that are not copied for a send: they are sent from where they lie, with the next batch out of a lent
/// buffer ([`HELD_BUFFERS_MAX`]), or else by the system call at once.
pub const EAGER_SEND_BYTES_MIN: usize = 8 * 1024;

/// Buffers in a loop's shared pool for datagrams, made when the first endpoint receives into it: 2 MiB.
pub const DATAGRAM_POOL_BUFFERS: u16 = 32;

/// Bytes in one buffer for datagrams: the head, and the longest train of them that the kernel makes
/// (`UDP_GRO`, 64 KiB). In a shorter one a train would be cut.
pub const DATAGRAM_POOL_BUFFER_BYTES: u32 = HEAD_LEN as u32 + 64 * 1024;

/// Buffers in a loop's pool for bundled receives (`net::Receive::bundled`), made when the first one asks: 1 MiB.
pub const BUNDLE_POOL_BUFFERS: u16 = 256;

/// Bytes in one of them: a page, so that little is left unused behind a short message.
pub const BUNDLE_POOL_BUFFER_BYTES: u32 = 4 * 1024;

/// Buffers in a loop's pool for incremental receives (`net::Receive::incremental`), made when the first one
/// asks: 2 MiB.
pub const PIECE_POOL_BUFFERS: u16 = 32;

/// Bytes in one of them, which receives of all such streams share.
pub const PIECE_POOL_BUFFER_BYTES: u32 = 64 * 1024;

/// Buffers in a loop's pool for single receives (`executor::RecvInto`), made when the first one asks. Each is taken from
/// the completion until its reader comes, so there are as many as a large batch of completions has; of their 4 MiB only
/// pages that bytes came into are memory.
pub const SINGLE_POOL_BUFFERS: u16 = 256;

/// Bytes in one of them.
pub const SINGLE_POOL_BUFFER_BYTES: u32 = 16 * 1024;

/// Datagrams that one receive takes at most before other descriptors get their turn (readiness).
pub const DATAGRAMS_PER_RECEIVE: usize = 16;

/// Connections that listeners may accept in one turn before other descriptors get theirs.
pub const ACCEPTS_PER_TURN: u32 = 64;

/// How long an accept that found no descriptor or memory waits before it says so: whoever asks again at once would find
/// the same, and keep the processor from those who could give some back.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that may wait for one stream of them (`net::Incoming`) before it stops accepting; the
/// others wait in the listener's backlog.
pub const UNTAKEN_CONNECTIONS_MAX: usize = 64;

/// Pool buffers that may wait for one stream of receives before it stops receiving: an eighth of the
/// pool, so that one reader that does not come leaves the others theirs.
pub const UNTAKEN_RECEIVES_MAX: usize = POOL_BUFFERS as usize / 8;

/// The same for a bundled receive.
pub const UNTAKEN_BUNDLED_MAX: usize = BUNDLE_POOL_BUFFERS as usize / 4;

/// The same for an incremental one, whose pieces are as long as a buffer at most.
pub const UNTAKEN_PIECES_MAX: usize = PIECE_POOL_BUFFERS as usize / 4;

/// The same for a stream of datagrams.
pub const UNTAKEN_DATAGRAMS_MAX: usize = DATAGRAM_POOL_BUFFERS as usize / 4;

/// Operations that one poll of a task may have done at once, by the system call, sleeps that were over when they
/// began, and what it takes at once from what threads share in `sync`, before it has to wait its turn: a peer that always
/// has more must not keep the others waiting.
pub const ATTEMPTS_PER_POLL: u32 = 32;

/// Bytes from which `write_all_zero_copy` leaves copying out: below, two completions and the wait for the
/// network cost more than the copy (docs/decisions/0010).
pub const ZERO_COPY_BYTES_MIN: usize = 32 * 1024;

/// Tasks polled in one turn before the driver is asked for completions.
pub const TASKS_PER_TURN: usize = 256;

/// Messages that other threads may have waiting for a loop. Far above any honest backlog, and low
/// enough that a runaway producer gets an error before the machine runs out of memory.
pub const INBOX_MESSAGES: usize = 1 << 24;

/// Buffers one vectored send may carry (`UIO_MAXIOV`, see sendmsg(2)).
pub const SEND_VECTOR_MAX: usize = 1024;

/// How long a closing driver waits for the kernel to give buffers back before it leaks them, loudly.
pub const DRAIN_TIMEOUT_MS: u64 = 1000;

/// Worker threads that a loop starts at most: calls that wait for a disk or a name server, not for the
/// processor.
pub const BLOCKING_THREADS: usize = 32;

/// Pieces of work that wait for a pool thread; past it the readiness driver keeps requests to itself,
/// and `spawn_blocking` waits.
pub const BLOCKING_QUEUE: usize = 1024;

/// How long a pool thread stays without work.
pub const BLOCKING_IDLE: Duration = Duration::from_secs(10);

/// Bytes that one read of a file may copy at once where they are in memory already: about 100 µs. A larger one goes
/// to a pool thread (readiness) or by the ring.
pub const CACHED_READ_BYTES: usize = 1 << 20;

/// Bytes from which on a read of a file is tried at once on the ring too: a system call costs less than an entry and a
/// turn, and many small reads that leave together cost less yet.
pub const BULK_READ_BYTES: usize = 1 << 16;

/// Buffers that one vectored read or write may carry (`UIO_MAXIOV`, see readv(2)).
pub const FILE_VECTOR_MAX: usize = 1024;

/// How soon a connect to a Unix listener with a full backlog is tried again, and a datagram to a full Unix socket: nothing
/// tells when it has room.
pub const CONNECT_PAUSE_MIN: Duration = Duration::from_micros(500);

/// How long such a pause becomes at most, by doubling: so many connects cost next to nothing, and none comes
/// noticeably late.
pub const CONNECT_PAUSE_MAX: Duration = Duration::from_millis(16);

/// How soon a child that has ended and cannot be reaped yet is looked at again: a tracer has it.
pub const REAP_PAUSE_MIN: Duration = Duration::from_millis(1);

/// How long such a pause becomes at most, by doubling.
pub const REAP_PAUSE_MAX: Duration = Duration::from_millis(64);

/// Entries of a directory that one call of a pool thread reads: about one getdents64(2).
pub const DIRECTORY_ENTRIES: usize = 256;

/// Bytes a polled stream receives at a time, and keeps until they are taken.
pub const POLLED_READ_BYTES: usize = 16 * 1024;

/// Bytes a polled stream keeps while as many are on their way: several of TLS's records, and a send worth
/// its system call.
pub const POLLED_WRITE_BYTES: usize = 64 * 1024;

/// How long a polled stream that was dropped goes on sending what was written to it.
pub const POLLED_LINGER_MS: u64 = 10_000;

/// Operations in one link that the ring runs by itself; a longer one is run in sequence.
pub const LINKED_MAX: usize = 64;

/// Slots in a ring's table of registered files; a file past it is used by its descriptor.
pub const REGISTERED_FILES: u32 = 1024;

/// Slots in a ring's table of registered buffers; a buffer past it is used by its address.
pub const REGISTERED_BUFFERS: u32 = 1024;
