//! The `io_uring` ABI, written out.
//!
//! Owns: the numbers and the structures of `include/uapi/linux/io_uring.h` that the engine uses, a
//! sentence for each. Called by: the ring and every operation that fills an [`Sqe`]. No code but
//! accessors.
//!
//! The names are the header's without the prefix `IORING_` (`IOSQE_` became `SQE_`). A version in
//! brackets is the first Linux that has it; without one, it is older than 6.1, which the ring
//! requires. The tests check every number against the bindings of the `io-uring` crate, and whole
//! SQEs byte by byte against its builders.

/// One request to the kernel: a submission queue entry.
///
/// ```text
///  byte 0        1        2            4            8                    16
///       opcode   flags    ioprio       fd           off                  addr
///  byte 24                28                        32
///       len               op_flags                  user_data
///  byte 40       42             44                  48                   56      64
///       buf_index personality   splice_fd_in        addr3                pad2
/// ```
/// What a field means depends on the opcode; unused fields must be zero, which is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sqe {
    /// Operation: one of `OP_*`.
    pub opcode: u8,
    /// `SQE_*` bits.
    pub flags: u8,
    /// I/O priority of file operations; for sockets the `RECV_*`, `RECVSEND_*`, `SEND_*` and
    /// `ACCEPT_*` bits.
    pub ioprio: u16,
    /// The descriptor to work on. Read by the kernel at submission, not when the entry is queued.
    pub fd: i32,
    /// File offset; the address length of a connect; where an accept reports the address length; a
    /// timeout's count.
    pub off: u64,
    /// The buffer, the message header, the address or the timespec; the `user_data` to cancel.
    pub addr: u64,
    /// Bytes in the buffer, entries in the vector, flags of a poll (`POLL_ADD_*`).
    pub len: u32,
    /// Flags of the operation itself: `MSG_*`, `SOCK_*`, `TIMEOUT_*`, `ASYNC_CANCEL_*`, the mask of
    /// a poll.
    pub op_flags: u32,
    /// Comes back unchanged in every completion of the entry.
    pub user_data: u64,
    /// Index of a registered buffer, or the buffer group where [`SQE_BUFFER_SELECT`] is set.
    pub buf_index: u16,
    /// Registered credentials to act under; 0 is the caller's own.
    pub personality: u16,
    /// Second descriptor of a splice; slot for a direct descriptor; address length of a send.
    pub splice_fd_in: i32,
    /// Extended attributes and vectored flags of a few operations.
    pub addr3: u64,
    /// Always zero.
    pub pad2: u64,
}

/// One result: a completion queue entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// The `user_data` of the entry that completed.
    pub user_data: u64,
    /// The system call's result; a negative errno on failure.
    pub res: i32,
    /// `CQE_F_*` bits; the buffer id in the upper half.
    pub flags: u32,
}

impl Cqe {
    /// True if the same entry will complete again. Otherwise it has ended and its memory is free.
    pub const fn more(&self) -> bool {
        self.flags & CQE_F_MORE != 0
    }

    /// Id of the provided buffer that the kernel used.
    pub const fn buffer(&self) -> Option<u16> {
        if self.flags & CQE_F_BUFFER != 0 {
            Some((self.flags >> CQE_BUFFER_SHIFT) as u16)
        } else {
            None
        }
    }

    /// True if the socket holds more bytes than this receive took.
    pub const fn sock_nonempty(&self) -> bool {
        self.flags & CQE_F_SOCK_NONEMPTY != 0
    }

    /// True if the kernel continues to fill the buffer that it used.
    pub const fn buffer_more(&self) -> bool {
        self.flags & CQE_F_BUF_MORE != 0
    }

    /// True for the second completion of a zero-copy send: the buffer is free now.
    pub const fn notification(&self) -> bool {
        self.flags & CQE_F_NOTIF != 0
    }
}

/// Offsets of the submission queue's fields, in bytes from the start of the mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SqOffsets {
    /// First entry the kernel has not taken; written by the kernel.
    pub head: u32,
    /// One past the last entry we queued; written by us.
    pub tail: u32,
    /// Entries minus one.
    pub ring_mask: u32,
    /// Entries.
    pub ring_entries: u32,
    /// `SQ_*` bits; written by the kernel.
    pub flags: u32,
    /// Entries the kernel refused because their index was bad.
    pub dropped: u32,
    /// Indices into the entries, one for each; 0 with [`SETUP_NO_SQARRAY`].
    pub array: u32,
    /// Reserved.
    pub resv1: u32,
    /// Address of caller-provided queue memory; not used here.
    pub user_addr: u64,
}

/// Offsets of the completion queue's fields, in bytes from the start of the mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CqOffsets {
    /// First entry we have not taken; written by us.
    pub head: u32,
    /// One past the last entry the kernel posted; written by the kernel.
    pub tail: u32,
    /// Entries minus one.
    pub ring_mask: u32,
    /// Entries.
    pub ring_entries: u32,
    /// Entries the kernel had to throw away; 0 on every kernel with [`FEAT_NODROP`].
    pub overflow: u32,
    /// The entries themselves.
    pub cqes: u32,
    /// Flags written by us (eventfd suppression); not used here.
    pub flags: u32,
    /// Reserved.
    pub resv1: u32,
    /// Address of caller-provided queue memory; not used here.
    pub user_addr: u64,
}

/// Parameters of a ring, and what the kernel set up.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Params {
    /// Submission entries; the kernel rounds up to a power of two.
    pub sq_entries: u32,
    /// Completion entries, with [`SETUP_CQSIZE`]; the kernel rounds up to a power of two.
    pub cq_entries: u32,
    /// `SETUP_*` bits.
    pub flags: u32,
    /// CPU of the polling thread; not used here.
    pub sq_thread_cpu: u32,
    /// Milliseconds without an entry after which the polling thread sleeps, with [`SETUP_SQPOLL`].
    pub sq_thread_idle: u32,
    /// `FEAT_*` bits; written by the kernel.
    pub features: u32,
    /// Ring whose worker threads to share; not used here.
    pub wq_fd: u32,
    /// Reserved.
    pub resv: [u32; 3],
    /// Layout of the submission queue; written by the kernel.
    pub sq_off: SqOffsets,
    /// Layout of the completion queue; written by the kernel.
    pub cq_off: CqOffsets,
}

/// A time, in the one form that the ring has on every architecture.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timespec {
    /// Whole seconds.
    pub tv_sec: i64,
    /// Nanoseconds, below 1 000 000 000.
    pub tv_nsec: i64,
}

/// Extends `io_uring_enter` by a timeout ([`ENTER_EXT_ARG`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GetEventsArg {
    /// Address of a signal mask for the wait; 0 keeps the thread's.
    pub sigmask: u64,
    /// Bytes in the mask.
    pub sigmask_sz: u32,
    /// Microseconds to wait for more than one completion ([`FEAT_MIN_TIMEOUT`]); 0 returns at the
    /// first.
    pub min_wait_usec: u32,
    /// Address of a [`Timespec`]; 0 waits without end.
    pub ts: u64,
}

/// Whether the kernel has an operation.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeOp {
    /// The operation.
    pub op: u8,
    /// Reserved.
    pub resv: u8,
    /// [`OP_SUPPORTED`] or nothing.
    pub flags: u16,
    /// Reserved.
    pub resv2: u32,
}

/// The operations that the kernel has ([`REGISTER_PROBE`]).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Highest operation the kernel knows.
    pub last_op: u8,
    /// Entries that were filled.
    pub ops_len: u8,
    /// Reserved.
    pub resv: u16,
    /// Reserved.
    pub resv2: [u32; 3],
    /// One entry per operation. The header has no length here; an 8-bit opcode can name 256.
    pub ops: [ProbeOp; 256],
}

/// Registers or drops a registered descriptor ([`REGISTER_RING_FDS`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceUpdate {
    /// Slot; all ones lets the kernel choose, and it writes its choice here.
    pub offset: u32,
    /// Reserved.
    pub resv: u32,
    /// The descriptor.
    pub data: u64,
}

/// Creates a table of registered files or buffers ([`REGISTER_FILES2`], [`REGISTER_BUFFERS2`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RsrcRegister {
    /// Slots.
    pub nr: u32,
    /// [`RSRC_REGISTER_SPARSE`] or nothing.
    pub flags: u32,
    /// Reserved.
    pub resv2: u64,
    /// Initial contents of the slots; 0 in a sparse table.
    pub data: u64,
    /// A number per slot, reported when it is released; 0 is none.
    pub tags: u64,
}

/// Fills or empties slots ([`REGISTER_FILES_UPDATE2`], [`REGISTER_BUFFERS_UPDATE`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RsrcUpdate2 {
    /// First slot.
    pub offset: u32,
    /// Reserved.
    pub resv: u32,
    /// Descriptors (-1 empties) or `iovec`s (a null one empties), one per slot.
    pub data: u64,
    /// As in [`RsrcRegister`].
    pub tags: u64,
    /// Slots.
    pub nr: u32,
    /// Reserved.
    pub resv2: u32,
}

/// Provides one buffer to the kernel: an entry of a buffer ring.
///
/// The last two bytes of entry 0 are not reserved: they are the ring's tail.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Buf {
    /// Where the buffer is.
    pub addr: u64,
    /// How many bytes it holds.
    pub len: u32,
    /// Its id, which comes back in the completion.
    pub bid: u16,
    /// Reserved; in entry 0 the tail of the ring.
    pub resv: u16,
}

/// Registers a buffer ring ([`REGISTER_PBUF_RING`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BufReg {
    /// Where the ring's entries are, page-aligned.
    pub ring_addr: u64,
    /// How many; a power of two, at most 32768.
    pub ring_entries: u32,
    /// The group's number.
    pub bgid: u16,
    /// [`PBUF_RING_INC`] or nothing.
    pub flags: u16,
    /// Reserved.
    pub resv: [u64; 3],
}

/// Cancels without an SQE ([`REGISTER_SYNC_CANCEL`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncCancel {
    /// The `user_data` to match.
    pub addr: u64,
    /// The descriptor to match.
    pub fd: i32,
    /// `ASYNC_CANCEL_*` bits.
    pub flags: u32,
    /// How long to wait for running operations; both fields -1 wait without limit.
    pub timeout: Timespec,
    /// The operation to match, with [`ASYNC_CANCEL_OP`].
    pub opcode: u8,
    /// Reserved.
    pub pad: [u8; 7],
    /// Reserved.
    pub pad2: [u64; 3],
}

mod numbers;

pub use numbers::*;

#[cfg(test)]
mod tests;
