//! Our definitions against the bindings of the `io-uring` crate, generated from the kernel's
//! header.
//!
//! The crate's bindings are private, so constants and layouts are compared with its source text;
//! whole entries are compared byte by byte with those of its public builders.

use super::*;
use io_uring::{opcode, squeue, types};
use std::collections::HashMap;
use std::mem::{offset_of, transmute};
use std::process::Command;

/// The source text of the bindings, in cargo's copy of the crate. Has cargo fetch missing packages
/// of the workspace: a fresh machine that tests only this crate lacks some.
fn bindings() -> String {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata = String::from_utf8(output.stdout).unwrap();
    let manifest = metadata
        .split('"')
        .find(|text| text.contains("/io-uring-0.7") && text.ends_with("/Cargo.toml"))
        .unwrap_or_else(|| panic!("cargo: {}", String::from_utf8_lossy(&output.stderr)));
    let root = manifest.trim_end_matches("Cargo.toml");
    let path = format!("{root}src/sys/sys_{}.rs", std::env::consts::ARCH);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every `pub const NAME: TYPE = VALUE;` whose value is a number or `1 << n`.
fn constants(source: &str) -> HashMap<&str, u64> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(&hex.replace('_', ""), 16).ok(),
        None => text.parse().ok(),
    };
    let value = |text: &str| match text.split_once(" << ") {
        Some((base, shift)) => Some(number(base)? << number(shift)?),
        None => number(text),
    };
    source
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
            let (_, text) = rest.strip_suffix(';')?.split_once(" = ")?;
            Some((name, value(text)?))
        })
        .collect()
}

/// The header's name for one of our constants.
fn header_name(name: &str) -> String {
    match name.strip_prefix("SQE_") {
        Some(flag) => format!("IOSQE_{flag}_BIT"),
        None if name == "OP_SUPPORTED" => "IO_URING_OP_SUPPORTED".to_owned(),
        None if name.starts_with("PBUF_") => format!("IOU_{name}"),
        None => format!("IORING_{name}"),
    }
}

#[test]
fn every_constant_is_the_headers() {
    let bindings = bindings();
    let theirs = constants(&bindings);
    let source = include_str!("numbers.rs");
    let ours = constants(source);
    assert_eq!(ours.len(), source.matches("\npub const ").count(), "a constant was not understood");
    for (name, &value) in &ours {
        let header = header_name(name);
        let expected = theirs.get(&*header).unwrap_or_else(|| panic!("{header} is not there"));
        let expected = if header.ends_with("_BIT") { 1 << expected } else { *expected };
        assert_eq!(value, expected, "{name}");
    }
    assert!(ours.len() > 100);
}

/// Size and field offsets that bindgen recorded for a structure.
fn layout(bindings: &str, name: &str) -> (usize, HashMap<String, usize>) {
    let start = bindings.find(&format!("fn bindgen_test_layout_{name}()")).unwrap();
    let body = &bindings[start..];
    let body = &body[..body.find("\n}\n").unwrap()];
    let number_after = |text: &str| -> usize {
        let end = text.find("usize,\n").unwrap();
        let digits = text[..end].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap();
        digits.parse().unwrap()
    };
    let size = number_after(&body[body.find("size_of").unwrap()..]);
    let fields = body
        .split("addr_of!((*ptr).")
        .skip(1)
        .map(|part| {
            let (field, rest) = part.split_once(')').unwrap();
            (field.to_owned(), number_after(rest))
        })
        .collect();
    (size, fields)
}

/// Compares the named fields, and the size, of one of our structures with the header's.
macro_rules! same_layout {
    ($bindings:expr, $theirs:literal, $ours:ty, $size:expr, [$($field:ident),*]) => {
        let (size, offsets) = layout($bindings, $theirs);
        assert_eq!($size, size, "size of {}", $theirs);
        $(assert_eq!(
            offset_of!($ours, $field),
            offsets[stringify!($field)],
            concat!($theirs, ".", stringify!($field))
        );)*
    };
    ($bindings:expr, $theirs:literal, $ours:ty, $fields:tt) => {
        same_layout!($bindings, $theirs, $ours, size_of::<$ours>(), $fields)
    };
}

#[test]
fn every_structure_of_the_queues_has_the_headers_layout() {
    let b = &*bindings();
    same_layout!(b, "io_uring_sqe", Sqe, [opcode, flags, ioprio, fd, len, user_data, personality]);
    same_layout!(b, "io_uring_cqe", Cqe, [user_data, res, flags]);
    same_layout!(
        b,
        "io_sqring_offsets",
        SqOffsets,
        [head, tail, ring_mask, ring_entries, flags, dropped, array, resv1, user_addr]
    );
    same_layout!(
        b,
        "io_cqring_offsets",
        CqOffsets,
        [head, tail, ring_mask, ring_entries, overflow, cqes, flags, resv1, user_addr]
    );
    same_layout!(
        b,
        "io_uring_params",
        Params,
        [
            sq_entries,
            cq_entries,
            flags,
            sq_thread_cpu,
            sq_thread_idle,
            features,
            wq_fd,
            resv,
            sq_off,
            cq_off
        ]
    );
    same_layout!(b, "__kernel_timespec", Timespec, [tv_sec, tv_nsec]);
    same_layout!(
        b,
        "io_uring_getevents_arg",
        GetEventsArg,
        [sigmask, sigmask_sz, min_wait_usec, ts]
    );
}

#[test]
fn every_structure_of_a_registration_has_the_headers_layout() {
    let b = &*bindings();
    same_layout!(b, "io_uring_probe_op", ProbeOp, [op, resv, flags, resv2]);
    let header = size_of::<Probe>() - 256 * size_of::<ProbeOp>();
    same_layout!(b, "io_uring_probe", Probe, header, [last_op, ops_len, resv, resv2, ops]);
    same_layout!(b, "io_uring_rsrc_update", ResourceUpdate, [offset, resv, data]);
    same_layout!(b, "io_uring_buf", Buf, [addr, len, bid, resv]);
    same_layout!(b, "io_uring_buf_reg", BufReg, [ring_addr, ring_entries, bgid, flags, resv]);
    same_layout!(
        b,
        "io_uring_sync_cancel_reg",
        SyncCancel,
        [addr, fd, flags, timeout, opcode, pad, pad2]
    );
}

/// The fields that are unions in the header: compared through the bytes of whole entries.
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
        Sqe { addr, off: 0x2000, op_flags: 0x800, ..on_fd(OP_ACCEPT) },
    );
    same_bytes(
        opcode::AcceptMulti::new(FD).flags(0x800).build(),
        Sqe { ioprio: ACCEPT_MULTISHOT, op_flags: 0x800, ..on_fd(OP_ACCEPT) },
    );
    same_bytes(
        opcode::Connect::new(FD, at.cast(), 28).build(),
        Sqe { addr, off: 28, ..on_fd(OP_CONNECT) },
    );
    same_bytes(
        opcode::Recv::new(FD, at, 9).flags(0x40).build().user_data(77),
        Sqe { addr, len: 9, op_flags: 0x40, user_data: 77, ..on_fd(OP_RECV) },
    );
    same_bytes(
        opcode::RecvMulti::new(FD, 5).build(),
        Sqe { ioprio: RECV_MULTISHOT, buf_index: 5, flags: SQE_BUFFER_SELECT, ..on_fd(OP_RECV) },
    );
    same_bytes(
        opcode::Send::new(FD, at, 9).flags(0x4000).build(),
        Sqe { addr, len: 9, op_flags: 0x4000, ..on_fd(OP_SEND) },
    );
    same_bytes(
        opcode::SendMsg::new(FD, at.cast()).flags(0x4000).build(),
        Sqe { addr, len: 1, op_flags: 0x4000, ..on_fd(OP_SENDMSG) },
    );
    same_bytes(
        opcode::RecvMsg::new(FD, at.cast()).build(),
        Sqe { addr, len: 1, ..on_fd(OP_RECVMSG) },
    );
    same_bytes(
        opcode::RecvMsgMulti::new(FD, at.cast(), 5).build(),
        Sqe {
            addr,
            len: 1,
            ioprio: RECV_MULTISHOT,
            buf_index: 5,
            flags: SQE_BUFFER_SELECT,
            ..on_fd(OP_RECVMSG)
        },
    );
}

#[test]
fn file_and_control_entries_are_what_the_crates_builders_make() {
    let at = std::ptr::without_provenance_mut::<u8>(0x1000);
    let addr = 0x1000;
    same_bytes(
        opcode::Nop::new().build().flags(squeue::Flags::IO_LINK),
        Sqe { flags: SQE_IO_LINK, fd: -1, ..on_fd(OP_NOP) },
    );
    same_bytes(
        opcode::Read::new(FD, at, 9).offset(11).build(),
        Sqe { addr, len: 9, off: 11, ..on_fd(OP_READ) },
    );
    same_bytes(
        opcode::Write::new(FD, at, 9).offset(u64::MAX).build(),
        Sqe { addr, len: 9, off: u64::MAX, ..on_fd(OP_WRITE) },
    );
    same_bytes(opcode::Close::new(FD).build(), on_fd(OP_CLOSE));
    same_bytes(
        opcode::PollAdd::new(FD, 0x2001).multi(true).build(),
        Sqe { op_flags: 0x2001, len: POLL_ADD_MULTI, ..on_fd(OP_POLL_ADD) },
    );
    same_bytes(
        opcode::PollRemove::new(77).build(),
        Sqe { addr: 77, fd: -1, ..on_fd(OP_POLL_REMOVE) },
    );
    same_bytes(
        opcode::AsyncCancel::new(77).build().flags(squeue::Flags::SKIP_SUCCESS),
        Sqe { addr: 77, fd: -1, flags: SQE_CQE_SKIP_SUCCESS, ..on_fd(OP_ASYNC_CANCEL) },
    );
    same_bytes(
        opcode::AsyncCancel2::new(types::CancelBuilder::fd(FD).all()).build(),
        Sqe { op_flags: ASYNC_CANCEL_FD | ASYNC_CANCEL_ALL, ..on_fd(OP_ASYNC_CANCEL) },
    );
    let time = types::Timespec::new().sec(1).nsec(2);
    same_bytes(
        opcode::Timeout::new(&raw const time).count(0).flags(types::TimeoutFlags::ABS).build(),
        Sqe {
            addr: &raw const time as u64,
            len: 1,
            fd: -1,
            op_flags: TIMEOUT_ABS,
            ..on_fd(OP_TIMEOUT)
        },
    );
}

#[test]
fn a_completion_is_read_as_the_crate_reads_it() {
    use io_uring::cqueue;
    for flags in [0, CQE_F_MORE, CQE_F_BUFFER | 0xBEEF << CQE_BUFFER_SHIFT, CQE_F_SOCK_NONEMPTY] {
        for flags in [flags, flags | CQE_F_NOTIF] {
            let cqe = Cqe { flags, ..Cqe::default() };
            assert_eq!(cqe.more(), cqueue::more(flags));
            assert_eq!(cqe.buffer(), cqueue::buffer_select(flags));
            assert_eq!(cqe.sock_nonempty(), cqueue::sock_nonempty(flags));
            assert_eq!(cqe.notification(), cqueue::notif(flags));
        }
    }
}
