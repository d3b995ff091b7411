//! The numbers of the header: operations, flags, what to register.
//!
//! Called by: code that fills an [`super::Sqe`] or reads a [`super::Cqe`].

#[cfg(doc)]
use super::{GetEventsArg, RsrcRegister, RsrcUpdate2};

// ---- Operations: Sqe::opcode

/// Completes with 0; for tests and for measuring.
pub const OP_NOP: u8 = 0;
/// Reads into a vector of buffers.
pub const OP_READV: u8 = 1;
/// Writes from a vector of buffers.
pub const OP_WRITEV: u8 = 2;
/// Flushes a file's data to disk.
pub const OP_FSYNC: u8 = 3;
/// Reads into a registered buffer.
pub const OP_READ_FIXED: u8 = 4;
/// Writes from a registered buffer.
pub const OP_WRITE_FIXED: u8 = 5;
/// Waits until a descriptor is ready, once or multishot (edge-triggered).
pub const OP_POLL_ADD: u8 = 6;
/// Ends or changes a poll.
pub const OP_POLL_REMOVE: u8 = 7;
/// Sends a message: bytes, address, control data.
pub const OP_SENDMSG: u8 = 9;
/// Receives a message: bytes, address, control data.
pub const OP_RECVMSG: u8 = 10;
/// Completes with `ETIME` when a time has come.
pub const OP_TIMEOUT: u8 = 11;
/// Ends or changes a timeout.
pub const OP_TIMEOUT_REMOVE: u8 = 12;
/// Accepts one connection, or each as it comes.
pub const OP_ACCEPT: u8 = 13;
/// Cancels requests; they complete with `ECANCELED`, or with their own result.
pub const OP_ASYNC_CANCEL: u8 = 14;
/// Limits the time of the entry before it in the chain.
pub const OP_LINK_TIMEOUT: u8 = 15;
/// Connects, and completes when the connection is established or has failed.
pub const OP_CONNECT: u8 = 16;
/// Reserves space for a file.
pub const OP_FALLOCATE: u8 = 17;
/// Opens a file.
pub const OP_OPENAT: u8 = 18;
/// Closes a descriptor.
pub const OP_CLOSE: u8 = 19;
/// Reads a file's metadata.
pub const OP_STATX: u8 = 21;
/// Reads into one buffer.
pub const OP_READ: u8 = 22;
/// Writes from one buffer.
pub const OP_WRITE: u8 = 23;
/// Declares how a file will be used.
pub const OP_FADVISE: u8 = 24;
/// Declares how memory will be used.
pub const OP_MADVISE: u8 = 25;
/// Sends bytes on a socket.
pub const OP_SEND: u8 = 26;
/// Receives bytes from a socket, once or (multishot) as they come.
pub const OP_RECV: u8 = 27;
/// Opens a file with restrictions on how the path resolves.
pub const OP_OPENAT2: u8 = 28;
/// Moves bytes between a pipe and a descriptor.
pub const OP_SPLICE: u8 = 30;
/// Copies bytes from one pipe to another.
pub const OP_TEE: u8 = 33;
/// Ends one or both directions of a connection.
pub const OP_SHUTDOWN: u8 = 34;
/// Renames a file.
pub const OP_RENAMEAT: u8 = 35;
/// Removes a file or a directory.
pub const OP_UNLINKAT: u8 = 36;
/// Creates a directory.
pub const OP_MKDIRAT: u8 = 37;
/// Creates a symbolic link.
pub const OP_SYMLINKAT: u8 = 38;
/// Creates a hard link.
pub const OP_LINKAT: u8 = 39;
/// Posts a completion to another ring.
pub const OP_MSG_RING: u8 = 40;
/// Creates a socket.
pub const OP_SOCKET: u8 = 45;
/// Runs a command of the file itself, such as a socket option (6.7).
pub const OP_URING_CMD: u8 = 46;
/// Sends without copying; completes twice.
pub const OP_SEND_ZC: u8 = 47;
/// Sends a message without copying; completes twice.
pub const OP_SENDMSG_ZC: u8 = 48;
/// Reads into provided buffers as bytes come (6.7).
pub const OP_READ_MULTISHOT: u8 = 49;
/// Waits for a child process (6.7).
pub const OP_WAITID: u8 = 50;
/// Waits on a futex (6.7).
pub const OP_FUTEX_WAIT: u8 = 51;
/// Wakes waiters of a futex (6.7).
pub const OP_FUTEX_WAKE: u8 = 52;
/// Sets a file's length (6.9).
pub const OP_FTRUNCATE: u8 = 55;

// ---- Flags of an entry: Sqe::flags

/// `fd` is a slot of the registered files.
pub const SQE_FIXED_FILE: u8 = 1 << 0;
/// Start only when all earlier entries have completed.
pub const SQE_IO_DRAIN: u8 = 1 << 1;
/// Start the next entry when this one has succeeded; cancel it otherwise.
pub const SQE_IO_LINK: u8 = 1 << 2;
/// Start the next entry when this one has completed, with any result.
pub const SQE_IO_HARDLINK: u8 = 1 << 3;
/// Go to a worker thread at once. Never for sockets.
pub const SQE_ASYNC: u8 = 1 << 4;
/// Take the buffer from the group `buf_index`.
pub const SQE_BUFFER_SELECT: u8 = 1 << 5;
/// Post no completion on success.
pub const SQE_CQE_SKIP_SUCCESS: u8 = 1 << 6;

// ---- Bits of Sqe::ioprio for sockets

/// Wait for readiness before the first attempt, which would fail.
pub const RECVSEND_POLL_FIRST: u16 = 1 << 0;
/// Multishot, each completion with a provided buffer.
pub const RECV_MULTISHOT: u16 = 1 << 1;
/// The second completion of a zero-copy send reports if the bytes were copied.
pub const SEND_ZC_REPORT_USAGE: u16 = 1 << 3;
/// Let one completion span several provided buffers (6.10).
pub const RECVSEND_BUNDLE: u16 = 1 << 4;
/// Complete for each connection.
pub const ACCEPT_MULTISHOT: u16 = 1 << 0;
/// Do not wait for a connection (6.10).
pub const ACCEPT_DONTWAIT: u16 = 1 << 1;
/// Wait for readiness before the first attempt (6.10).
pub const ACCEPT_POLL_FIRST: u16 = 1 << 2;

// ---- Flags of a poll, in Sqe::len

/// Complete on each change (edge-triggered).
pub const POLL_ADD_MULTI: u32 = 1 << 0;
/// Change the mask of the poll that `addr` names.
pub const POLL_UPDATE_EVENTS: u32 = 1 << 1;
/// Change the `user_data` of the poll that `addr` names.
pub const POLL_UPDATE_USER_DATA: u32 = 1 << 2;

// ---- Flags of a cancellation, in Sqe::op_flags

/// Cancel all matches, not only the first; completes with their number.
pub const ASYNC_CANCEL_ALL: u32 = 1 << 0;
/// Match by descriptor instead of `user_data`.
pub const ASYNC_CANCEL_FD: u32 = 1 << 1;
/// Match everything.
pub const ASYNC_CANCEL_ANY: u32 = 1 << 2;
/// The descriptor is a slot of the registered files.
pub const ASYNC_CANCEL_FD_FIXED: u32 = 1 << 3;
/// Match by `user_data`, in addition to another key (6.6).
pub const ASYNC_CANCEL_USERDATA: u32 = 1 << 4;
/// Match by operation (6.6).
pub const ASYNC_CANCEL_OP: u32 = 1 << 5;

// ---- Flags of a timeout, in Sqe::op_flags

/// The time is absolute.
pub const TIMEOUT_ABS: u32 = 1 << 0;
/// Change the timeout that `addr` names.
pub const TIMEOUT_UPDATE: u32 = 1 << 1;
/// Use the clock that counts suspended time.
pub const TIMEOUT_BOOTTIME: u32 = 1 << 2;
/// Use the wall clock.
pub const TIMEOUT_REALTIME: u32 = 1 << 3;
/// Change a linked timeout.
pub const LINK_TIMEOUT_UPDATE: u32 = 1 << 4;
/// Expiry counts as success, so that a chain goes on.
pub const TIMEOUT_ETIME_SUCCESS: u32 = 1 << 5;
/// Complete again each time the span has passed (6.4).
pub const TIMEOUT_MULTISHOT: u32 = 1 << 6;

// ---- Flags of a file sync, in Sqe::op_flags

/// Only the data and what is needed to read it back.
pub const FSYNC_DATASYNC: u32 = 1 << 0;

// ---- Messages between rings

/// In [`Sqe::addr`](super::Sqe::addr): post `len` as the result and `off` as the `user_data`.
pub const MSG_DATA: u64 = 0;
/// In [`Sqe::addr`](super::Sqe::addr): hand over a direct descriptor.
pub const MSG_SEND_FD: u64 = 1;

// ---- Flags of a completion: Cqe::flags

/// The upper half is the id of the provided buffer used.
pub const CQE_F_BUFFER: u32 = 1 << 0;
/// The same entry will complete again.
pub const CQE_F_MORE: u32 = 1 << 1;
/// The socket holds more bytes.
pub const CQE_F_SOCK_NONEMPTY: u32 = 1 << 2;
/// Second completion of a zero-copy send.
pub const CQE_F_NOTIF: u32 = 1 << 3;
/// The buffer is not used up: more bytes will follow these (6.12).
pub const CQE_F_BUF_MORE: u32 = 1 << 4;
/// Shift of the buffer id.
pub const CQE_BUFFER_SHIFT: u32 = 16;

// ---- Set-up flags: Params::flags

/// A kernel thread takes entries off the submission queue; no enter is needed.
pub const SETUP_SQPOLL: u32 = 1 << 1;
/// Take the completion queue's size from the parameters.
pub const SETUP_CQSIZE: u32 = 1 << 3;
/// Reduce sizes that are too large instead of failing.
pub const SETUP_CLAMP: u32 = 1 << 4;
/// Start disabled; the thread that enables becomes the submitter.
pub const SETUP_R_DISABLED: u32 = 1 << 6;
/// One bad entry does not stop the rest of the batch.
pub const SETUP_SUBMIT_ALL: u32 = 1 << 7;
/// Do not interrupt the thread to run completions.
pub const SETUP_COOP_TASKRUN: u32 = 1 << 8;
/// Set a queue flag while completions wait to be run.
pub const SETUP_TASKRUN_FLAG: u32 = 1 << 9;
/// One thread submits; others get `EEXIST` (6.0).
pub const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
/// Run completions only when asked for events (6.1).
pub const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
/// Leave out the index array: entry *n* is entry *n* (6.6).
pub const SETUP_NO_SQARRAY: u32 = 1 << 16;

// ---- Features of the kernel: Params::features

/// Both queues share one mapping.
pub const FEAT_SINGLE_MMAP: u32 = 1 << 0;
/// A full completion queue loses nothing.
pub const FEAT_NODROP: u32 = 1 << 1;
/// Structures that an entry points to (not buffers) are read at submission.
pub const FEAT_SUBMIT_STABLE: u32 = 1 << 2;
/// Offset -1 means the file's own position.
pub const FEAT_RW_CUR_POS: u32 = 1 << 3;
/// Requests run under the credentials of the submitter.
pub const FEAT_CUR_PERSONALITY: u32 = 1 << 4;
/// Sockets wait by polling inside the kernel, not in a worker thread.
pub const FEAT_FAST_POLL: u32 = 1 << 5;
/// Poll masks have 32 bits.
pub const FEAT_POLL_32BITS: u32 = 1 << 6;
/// Submission polling works with ordinary descriptors.
pub const FEAT_SQPOLL_NONFIXED: u32 = 1 << 7;
/// A wait takes a timeout.
pub const FEAT_EXT_ARG: u32 = 1 << 8;
/// Worker threads belong to the process.
pub const FEAT_NATIVE_WORKERS: u32 = 1 << 9;
/// Registered resources report when they are released.
pub const FEAT_RSRC_TAGS: u32 = 1 << 10;
/// [`SQE_CQE_SKIP_SUCCESS`] exists.
pub const FEAT_CQE_SKIP: u32 = 1 << 11;
/// The file of a linked entry is looked up when it starts.
pub const FEAT_LINKED_FILE: u32 = 1 << 12;
/// Registration takes a registered ring descriptor (6.3).
pub const FEAT_REG_REG_RING: u32 = 1 << 13;
/// [`RECVSEND_BUNDLE`] exists (6.10).
pub const FEAT_RECVSEND_BUNDLE: u32 = 1 << 14;
/// A wait can collect a batch (6.12).
pub const FEAT_MIN_TIMEOUT: u32 = 1 << 15;
/// Reads and writes take attributes (6.14).
pub const FEAT_RW_ATTR: u32 = 1 << 16;
/// A wait need not count as I/O wait (6.15).
pub const FEAT_NO_IOWAIT: u32 = 1 << 17;

// ---- Flags in the submission queue

/// The polling thread sleeps, and needs [`ENTER_SQ_WAKEUP`].
pub const SQ_NEED_WAKEUP: u32 = 1 << 0;
/// Completions wait outside the full queue; enter fetches them.
pub const SQ_CQ_OVERFLOW: u32 = 1 << 1;
/// Completions wait to be run; enter runs them.
pub const SQ_TASKRUN: u32 = 1 << 2;

// ---- Flags of `io_uring_enter`

/// Run and wait for completions.
pub const ENTER_GETEVENTS: u32 = 1 << 0;
/// Wake the polling thread.
pub const ENTER_SQ_WAKEUP: u32 = 1 << 1;
/// The argument is a [`GetEventsArg`].
pub const ENTER_EXT_ARG: u32 = 1 << 3;
/// The descriptor is a slot of the registered rings.
pub const ENTER_REGISTERED_RING: u32 = 1 << 4;
/// The timeout is absolute (6.12).
pub const ENTER_ABS_TIMER: u32 = 1 << 5;
/// Do not count the wait as I/O wait (6.15).
pub const ENTER_NO_IOWAIT: u32 = 1 << 7;

// ---- Opcodes of `io_uring_register`

/// Query the operations.
pub const REGISTER_PROBE: u32 = 8;
/// Register files, or create an empty table for them.
pub const REGISTER_FILES2: u32 = 13;
/// Fill or empty slots of the registered files.
pub const REGISTER_FILES_UPDATE2: u32 = 14;
/// Register buffers, or create an empty table for them.
pub const REGISTER_BUFFERS2: u32 = 15;
/// Fill or empty slots of the registered buffers.
pub const REGISTER_BUFFERS_UPDATE: u32 = 16;
/// Enable a ring; the caller becomes its submitter.
pub const REGISTER_ENABLE_RINGS: u32 = 12;
/// Limit the worker threads.
pub const REGISTER_IOWQ_MAX_WORKERS: u32 = 19;
/// Give the calling thread a slot for the ring's descriptor.
pub const REGISTER_RING_FDS: u32 = 20;
/// Free that slot.
pub const UNREGISTER_RING_FDS: u32 = 21;
/// Register a buffer ring.
pub const REGISTER_PBUF_RING: u32 = 22;
/// Drop a buffer ring.
pub const UNREGISTER_PBUF_RING: u32 = 23;
/// Cancel without an entry.
pub const REGISTER_SYNC_CANCEL: u32 = 24;
/// Post to a ring without owning one (6.13).
pub const REGISTER_SEND_MSG_RING: u32 = 31;
/// Change the queues' sizes (6.13).
pub const REGISTER_RESIZE_RINGS: u32 = 33;

/// A buffer is used up in pieces: the entry's address and length advance (6.12).
pub const PBUF_RING_INC: u16 = 1 << 1;

// ---- Registered files and buffers: flags of [`RsrcRegister`]

/// The table is empty; [`RsrcUpdate2`] fills its slots.
pub const RSRC_REGISTER_SPARSE: u32 = 1 << 0;

// ---- Offsets for mapping a ring

/// Both queues.
pub const OFF_SQ_RING: u64 = 0;
/// The submission entries.
pub const OFF_SQES: u64 = 0x1000_0000;

// ---- Flags of a probe: ProbeOp::flags

/// The kernel has the operation.
pub const OP_SUPPORTED: u16 = 1 << 0;
