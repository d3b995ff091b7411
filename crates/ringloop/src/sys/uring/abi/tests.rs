//! Whole entries against those of the `io-uring` crate's builders, byte by byte: what a field means
//! for an operation is not in the header's types.

use super::*;
use ::io_uring::{opcode, squeue, types};
use std::mem::transmute;

fn same_bytes(theirs: squeue::Entry, ours: Sqe) {
    // SAFETY: both are 64 plain bytes without padding.
    let theirs = unsafe { transmute::<squeue::Entry, [u8; 64]>(theirs) };
    // SAFETY: both are 64 plain bytes without padding.
    let bytes = unsafe { transmute::<Sqe, [u8; 64]>(ours) };
    assert_eq!(theirs, bytes, "{ours:?}");
}

const FD: types::Fd = types::Fd(3);

fn on_fd(opcode: u8) -> Sqe {
    Sqe { opcode, fd: 3, ..Sqe::default() }
}

#[test]
fn socket_entries_are_what_the_crates_builders_make() {
    let at = std::ptr::without_provenance_mut::<u8>(0x1000);
    let addr = 0x1000;
    same_bytes(
        opcode::Accept::new(FD, at.cast(), 0x2000 as _).flags(0x800).build(),
        Sqe { addr, off: 0x2000, op_flags: 0x800, ..on_fd(IORING_OP_ACCEPT) },
    );
    same_bytes(
        opcode::AcceptMulti::new(FD).flags(0x800).build(),
        Sqe { ioprio: IORING_ACCEPT_MULTISHOT, op_flags: 0x800, ..on_fd(IORING_OP_ACCEPT) },
    );
    same_bytes(
        opcode::Connect::new(FD, at.cast(), 28).build(),
        Sqe { addr, off: 28, ..on_fd(IORING_OP_CONNECT) },
    );
    same_bytes(
        opcode::Recv::new(FD, at, 9).flags(0x40).build().user_data(77),
        Sqe { addr, len: 9, op_flags: 0x40, user_data: 77, ..on_fd(IORING_OP_RECV) },
    );
    same_bytes(
        opcode::RecvMulti::new(FD, 5).build(),
        Sqe {
            ioprio: IORING_RECV_MULTISHOT,
            buf_index: 5,
            flags: IOSQE_BUFFER_SELECT,
            ..on_fd(IORING_OP_RECV)
        },
    );
    same_bytes(
        opcode::Send::new(FD, at, 9).flags(0x4000).build(),
        Sqe { addr, len: 9, op_flags: 0x4000, ..on_fd(IORING_OP_SEND) },
    );
    same_bytes(
        opcode::SendMsg::new(FD, at.cast()).flags(0x4000).build(),
        Sqe { addr, len: 1, op_flags: 0x4000, ..on_fd(IORING_OP_SENDMSG) },
    );
    same_bytes(
        opcode::RecvMsg::new(FD, at.cast()).build(),
        Sqe { addr, len: 1, ..on_fd(IORING_OP_RECVMSG) },
    );
    same_bytes(
        opcode::RecvMsgMulti::new(FD, at.cast(), 5).build(),
        Sqe {
            addr,
            len: 1,
            ioprio: IORING_RECV_MULTISHOT,
            buf_index: 5,
            flags: IOSQE_BUFFER_SELECT,
            ..on_fd(IORING_OP_RECVMSG)
        },
    );
}

#[test]
fn file_and_control_entries_are_what_the_crates_builders_make() {
    let at = std::ptr::without_provenance_mut::<u8>(0x1000);
    let addr = 0x1000;
    same_bytes(
        opcode::Nop::new().build().flags(squeue::Flags::IO_LINK),
        Sqe { flags: IOSQE_IO_LINK, fd: -1, ..on_fd(IORING_OP_NOP) },
    );
    same_bytes(
        opcode::Read::new(FD, at, 9).offset(11).build(),
        Sqe { addr, len: 9, off: 11, ..on_fd(IORING_OP_READ) },
    );
    same_bytes(
        opcode::Write::new(FD, at, 9).offset(u64::MAX).build(),
        Sqe { addr, len: 9, off: u64::MAX, ..on_fd(IORING_OP_WRITE) },
    );
    same_bytes(opcode::Close::new(FD).build(), on_fd(IORING_OP_CLOSE));
    same_bytes(
        opcode::PollAdd::new(FD, 0x2001).multi(true).build(),
        Sqe { op_flags: 0x2001, len: IORING_POLL_ADD_MULTI, ..on_fd(IORING_OP_POLL_ADD) },
    );
    same_bytes(
        opcode::PollRemove::new(77).build(),
        Sqe { addr: 77, fd: -1, ..on_fd(IORING_OP_POLL_REMOVE) },
    );
    same_bytes(
        opcode::AsyncCancel::new(77).build().flags(squeue::Flags::SKIP_SUCCESS),
        Sqe { addr: 77, fd: -1, flags: IOSQE_CQE_SKIP_SUCCESS, ..on_fd(IORING_OP_ASYNC_CANCEL) },
    );
    same_bytes(
        opcode::AsyncCancel2::new(types::CancelBuilder::fd(FD).all()).build(),
        Sqe {
            op_flags: IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL,
            ..on_fd(IORING_OP_ASYNC_CANCEL)
        },
    );
    let time = types::Timespec::new().sec(1).nsec(2);
    same_bytes(
        opcode::Timeout::new(&raw const time).count(0).flags(types::TimeoutFlags::ABS).build(),
        Sqe {
            addr: &raw const time as u64,
            len: 1,
            fd: -1,
            op_flags: IORING_TIMEOUT_ABS,
            ..on_fd(IORING_OP_TIMEOUT)
        },
    );
}

#[test]
fn a_completion_is_read_as_the_crate_reads_it() {
    use ::io_uring::cqueue;
    for flags in [
        0,
        IORING_CQE_F_MORE,
        IORING_CQE_F_BUFFER | 0xBEEF << IORING_CQE_BUFFER_SHIFT,
        IORING_CQE_F_SOCK_NONEMPTY,
    ] {
        for flags in [flags, flags | IORING_CQE_F_NOTIF] {
            let cqe = Cqe { flags, ..Cqe::default() };
            assert_eq!(cqe.more(), cqueue::more(flags));
            assert_eq!(cqe.buffer(), cqueue::buffer_select(flags));
            assert_eq!(cqe.notification(), cqueue::notif(flags));
        }
    }
}
