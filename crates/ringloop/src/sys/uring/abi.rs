//! The `io_uring` ABI: the kernel's header, by the crate `linux-raw-sys`.
//!
//! Owns: [`Sqe`] and [`Cqe`], which the header writes with unions and an array without a length; and
//! its constants in the width of the field that each goes to. Everything else is the crate's, under
//! the header's name or, for structures, a shorter one. Called by: the ring and every operation that
//! fills an [`Sqe`]. `io_uring_enter(2)`, `io_uring_setup(2)` and `io_uring_register(2)` say what
//! each number means.

use linux_raw_sys::io_uring;
pub use linux_raw_sys::io_uring::{
    __kernel_timespec as Timespec, io_uring_buf as Buf, io_uring_buf_reg as BufReg,
    io_uring_getevents_arg as GetEventsArg, io_uring_params as Params,
    io_uring_probe_op as ProbeOp, io_uring_rsrc_register as RsrcRegister,
    io_uring_rsrc_update as ResourceUpdate, io_uring_rsrc_update2 as RsrcUpdate2, *,
};

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
    /// Operation: one of `IORING_OP_*`.
    pub opcode: u8,
    /// `IOSQE_*` bits.
    pub flags: u8,
    /// I/O priority of file operations; for sockets the bits `IORING_RECV_*`, `IORING_RECVSEND_*`,
    /// `IORING_SEND_*` and `IORING_ACCEPT_*`.
    pub ioprio: u16,
    /// The descriptor to work on. Read by the kernel at submission, not when the entry is queued.
    pub fd: i32,
    /// File offset; the address length of a connect; where an accept reports the address length; a
    /// timeout's count.
    pub off: u64,
    /// The buffer, the message header, the address or the timespec; the `user_data` to cancel.
    pub addr: u64,
    /// Bytes in the buffer, entries in the vector, flags of a poll (`IORING_POLL_ADD_*`).
    pub len: u32,
    /// Flags of the operation itself: `MSG_*`, `SOCK_*`, `IORING_TIMEOUT_*`,
    /// `IORING_ASYNC_CANCEL_*`, the mask of a poll.
    pub op_flags: u32,
    /// Comes back unchanged in every completion of the entry.
    pub user_data: u64,
    /// Index of a registered buffer, or the buffer group where [`IOSQE_BUFFER_SELECT`] is set.
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
    /// `IORING_CQE_F_*` bits; the buffer id in the upper half.
    pub flags: u32,
}

impl Cqe {
    /// True if the same entry will complete again. Otherwise it has ended and its memory is free.
    pub const fn more(&self) -> bool {
        self.flags & IORING_CQE_F_MORE != 0
    }

    /// Id of the provided buffer that the kernel used.
    pub const fn buffer(&self) -> Option<u16> {
        if self.flags & IORING_CQE_F_BUFFER != 0 {
            Some((self.flags >> IORING_CQE_BUFFER_SHIFT) as u16)
        } else {
            None
        }
    }

    /// True if the kernel continues to fill the buffer that it used.
    pub const fn buffer_more(&self) -> bool {
        self.flags & IORING_CQE_F_BUF_MORE != 0
    }

    /// True for the second completion of a zero-copy send: the buffer is free now.
    pub const fn notification(&self) -> bool {
        self.flags & IORING_CQE_F_NOTIF != 0
    }
}

/// The operations that the kernel has ([`IORING_REGISTER_PROBE`]).
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

/// What the kernel reads and writes, in bytes, as its header has it on every processor of 64 bits:
/// a size for each structure, and where its fields are.
macro_rules! layout {
    ($($name:ident: $size:literal { $($($field:ident).+ = $at:literal)* })+) => {
        const _: () = {
            use std::mem::offset_of;
            $(
                assert!(size_of::<$name>() == $size);
                $(assert!(offset_of!($name, $($field).+) == $at);)*
            )+
        };
    };
}

layout! {
    Sqe: 64 {
        opcode = 0 flags = 1 ioprio = 2 fd = 4 off = 8 addr = 16 len = 24 op_flags = 28
        user_data = 32 buf_index = 40 personality = 42 splice_fd_in = 44 addr3 = 48 pad2 = 56
    }
    io_uring_sqe: 64 {
        opcode = 0 flags = 1 ioprio = 2 fd = 4 __bindgen_anon_1 = 8 __bindgen_anon_2 = 16 len = 24
        __bindgen_anon_3 = 28 user_data = 32 __bindgen_anon_4 = 40 personality = 42
        __bindgen_anon_5 = 44 __bindgen_anon_6 = 48
    }
    Cqe: 16 { user_data = 0 res = 8 flags = 12 }
    io_uring_cqe: 16 { user_data = 0 res = 8 flags = 12 }
    Params: 120 {
        sq_entries = 0 cq_entries = 4 flags = 8 sq_thread_cpu = 12 sq_thread_idle = 16 features = 20
        wq_fd = 24 resv = 28
        sq_off.head = 40 sq_off.tail = 44 sq_off.ring_mask = 48 sq_off.ring_entries = 52
        sq_off.flags = 56 sq_off.dropped = 60 sq_off.array = 64 sq_off.user_addr = 72
        cq_off.head = 80 cq_off.tail = 84 cq_off.ring_mask = 88 cq_off.ring_entries = 92
        cq_off.overflow = 96 cq_off.cqes = 100 cq_off.flags = 104 cq_off.user_addr = 112
    }
    GetEventsArg: 24 { sigmask = 0 sigmask_sz = 8 min_wait_usec = 12 ts = 16 }
    Timespec: 16 { tv_sec = 0 tv_nsec = 8 }
    Buf: 16 { addr = 0 len = 8 bid = 12 resv = 14 }
    BufReg: 40 { ring_addr = 0 ring_entries = 8 bgid = 12 flags = 14 resv = 16 }
    RsrcRegister: 32 { nr = 0 flags = 4 resv2 = 8 data = 16 tags = 24 }
    ResourceUpdate: 16 { offset = 0 resv = 4 data = 8 }
    RsrcUpdate2: 32 { offset = 0 resv = 4 data = 8 tags = 16 nr = 24 resv2 = 28 }
    ProbeOp: 8 { op = 0 resv = 1 flags = 2 resv2 = 4 }
    Probe: 2064 { last_op = 0 ops_len = 1 resv = 2 resv2 = 4 ops = 16 }
    io_uring_probe: 16 { last_op = 0 ops_len = 1 resv = 2 resv2 = 4 ops = 16 }
}

/// Constants of the header, in the width of the field that they go to.
macro_rules! narrow {
    ($width:ty, $from:ident: $($name:ident)+) => {
        $(
            /// As in the header.
            pub const $name: $width = $from::$name as $width;
        )+
    };
}

// `Sqe::opcode`
narrow! {
    u8, io_uring_op:
    IORING_OP_NOP IORING_OP_READV IORING_OP_WRITEV IORING_OP_FSYNC IORING_OP_READ_FIXED
    IORING_OP_WRITE_FIXED IORING_OP_POLL_ADD IORING_OP_POLL_REMOVE IORING_OP_SENDMSG
    IORING_OP_RECVMSG IORING_OP_TIMEOUT IORING_OP_ACCEPT IORING_OP_ASYNC_CANCEL
    IORING_OP_LINK_TIMEOUT IORING_OP_CONNECT IORING_OP_FALLOCATE IORING_OP_OPENAT
    IORING_OP_CLOSE IORING_OP_STATX IORING_OP_READ IORING_OP_WRITE IORING_OP_SEND IORING_OP_RECV
    IORING_OP_SPLICE IORING_OP_TEE IORING_OP_RENAMEAT IORING_OP_UNLINKAT IORING_OP_MKDIRAT
    IORING_OP_SYMLINKAT IORING_OP_LINKAT IORING_OP_MSG_RING IORING_OP_SEND_ZC
    IORING_OP_SENDMSG_ZC IORING_OP_READ_MULTISHOT IORING_OP_WAITID IORING_OP_FUTEX_WAIT
    IORING_OP_FTRUNCATE
}

// `Sqe::ioprio` of sockets
narrow! {
    u16, io_uring:
    IORING_RECVSEND_POLL_FIRST IORING_RECV_MULTISHOT IORING_SEND_ZC_REPORT_USAGE
    IORING_RECVSEND_BUNDLE IORING_ACCEPT_MULTISHOT
}

narrow! { u16, io_uring: IO_URING_OP_SUPPORTED }
narrow! { u16, io_uring_register_pbuf_ring_flags: IOU_PBUF_RING_INC }
narrow! { u64, io_uring: IORING_OFF_SQ_RING IORING_OFF_SQES }

// The first argument of `io_uring_register(2)`
narrow! {
    u32, io_uring_register_op:
    IORING_REGISTER_PROBE IORING_REGISTER_FILES2 IORING_REGISTER_FILES_UPDATE2
    IORING_REGISTER_BUFFERS2 IORING_REGISTER_BUFFERS_UPDATE IORING_REGISTER_ENABLE_RINGS
    IORING_REGISTER_RING_FDS IORING_UNREGISTER_RING_FDS IORING_REGISTER_PBUF_RING
    IORING_UNREGISTER_PBUF_RING
}

/// In `Sqe::flags`: `fd` is a slot of the registered files.
pub const IOSQE_FIXED_FILE: u8 = 1 << io_uring_sqe_flags_bit::IOSQE_FIXED_FILE_BIT as u8;
/// Start the next entry when this one has succeeded; cancel it otherwise.
pub const IOSQE_IO_LINK: u8 = 1 << io_uring_sqe_flags_bit::IOSQE_IO_LINK_BIT as u8;
/// Run it on a worker thread of the kernel at once, without an inline attempt.
pub const IOSQE_ASYNC: u8 = 1 << io_uring_sqe_flags_bit::IOSQE_ASYNC_BIT as u8;
/// Take the buffer from the group `buf_index`.
pub const IOSQE_BUFFER_SELECT: u8 = 1 << io_uring_sqe_flags_bit::IOSQE_BUFFER_SELECT_BIT as u8;
/// Post no completion on success.
pub const IOSQE_CQE_SKIP_SUCCESS: u8 =
    1 << io_uring_sqe_flags_bit::IOSQE_CQE_SKIP_SUCCESS_BIT as u8;

#[cfg(test)]
mod tests;
