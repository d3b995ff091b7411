//! Linux: the C library's own items, and calls that not every C library wraps.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::RawFd;

pub use libc::{
    AT_EMPTY_PATH, AT_STATX_DONT_SYNC, EBADFD, ETIME, IP_MTU_DISCOVER, IP_PKTINFO,
    IP_PMTUDISC_PROBE, IP_RECVERR, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE, IPV6_RECVERR,
    MAP_POPULATE, MSG_CMSG_CLOEXEC, MSG_ERRQUEUE, MSG_NOSIGNAL, O_PATH, O_TMPFILE, P_PIDFD,
    RWF_NOWAIT, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
    SO_ATTACH_REUSEPORT_CBPF, SO_DOMAIN, SO_PROTOCOL, SOCK_CLOEXEC, SOCK_NONBLOCK, SOL_UDP,
    SPLICE_F_MOVE, SPLICE_F_NONBLOCK, STATX_BASIC_STATS, STATX_BTIME, TCP_KEEPIDLE, UDP_GRO,
    UDP_SEGMENT, UIO_MAXIOV,
};
pub use libc::{
    CPU_ISSET, CPU_SET, accept4, cpu_set_t, fallocate, fdatasync, fsync, getsockopt, loff_t,
    mmsghdr, pipe2, preadv2, pwritev2, recvmmsg, recvmsg, sched_getaffinity, sched_setaffinity,
    sendmmsg, sock_filter, sock_fprog, socket, socketpair, splice, statx, statx_timestamp, tee,
};

/// The monotonic clock of the standard libraries of Rust and Python.
pub const CLOCK_MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;
/// The type of the control message with a received packet's type of service.
pub const IP_TOS_RECEIVED: c_int = libc::IP_TOS;
/// Where a received `in_pktinfo` has the local address.
pub const PKTINFO_LOCAL_AT: usize = 4;
/// Length of an `in_pktinfo`.
pub const PKTINFO_LEN: usize = 12;
/// Where it has the source of a sent packet.
pub const PKTINFO_SOURCE_AT: usize = 4;
/// False: the type of service in a control message is an `int`.
pub const IP_TOS_IS_A_BYTE: bool = false;
/// True: see [`MSG_ERRQUEUE`].
pub const HAS_ERROR_QUEUE: bool = true;
/// A pipe of packets.
pub const O_DIRECT: Option<c_int> = Some(libc::O_DIRECT);
/// True if the kind of a socket can have flags.
pub const HAS_SOCKET_FLAGS: bool = true;
/// True if one message can be several datagrams, on a kernel that is new enough.
pub const HAS_SEGMENTATION: bool = true;
/// True if Unix sockets have names that are no files.
pub const HAS_ABSTRACT_NAMES: bool = true;
/// The major number of `/dev/null`, `/dev/zero`, `/dev/full` and their like. See
/// Documentation/admin-guide/devices.txt of the kernel.
pub const MEMORY_DEVICES: u32 = 1;
/// The call of [`exclude_from_fork`].
pub const EXCLUDE_FROM_FORK: &str = "madvise";

/// Kind and permissions of a file.
pub const fn mode_of(status: &libc::stat) -> u32 {
    status.st_mode
}

/// The major number of a device.
pub const fn major(device: libc::dev_t) -> u32 {
    libc::major(device)
}

/// Sets up a socket that its caller has just made.
pub fn prepare_socket(_socket: RawFd) {}

/// madvise(2), `MADV_DONTFORK`.
///
/// # Safety
/// The range is a mapping of the caller's.
pub unsafe fn exclude_from_fork(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { libc::madvise(at, len, libc::MADV_DONTFORK) }
}

/// openat2(2), `RESOLVE_CACHED`.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn openat_cached(dir: c_int, path: *const c_char, flags: c_int) -> c_long {
    // SAFETY: it holds only integers, and zeros are its defaults.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from(flags.cast_unsigned());
    how.resolve = libc::RESOLVE_CACHED;
    let len = size_of::<libc::open_how>();
    // SAFETY: X1; the structure is live for the call.
    unsafe { libc::syscall(libc::SYS_openat2, dir, path, &raw const how, len) }
}

/// renameat2(2).
///
/// # Safety
/// Both names are C strings.
pub unsafe fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_long {
    // SAFETY: X1.
    unsafe { libc::syscall(libc::SYS_renameat2, from_dir, from, to_dir, to, flags) }
}

/// fcntl(2), `F_SETPIPE_SZ`.
pub fn set_pipe_capacity(fd: RawFd, len: c_int) -> c_int {
    // SAFETY: no pointer is passed.
    unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, len) }
}

/// The calling thread's number. See gettid(2).
pub fn gettid() -> libc::pid_t {
    // SAFETY: no pointer is passed, and the call cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::pid_t }
}

/// `io_uring_setup(2)`.
///
/// # Safety
/// `params` is a live `io_uring_params`.
pub unsafe fn io_uring_setup(entries: u32, params: *mut c_void) -> c_long {
    // SAFETY: X1.
    unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params) }
}

/// `io_uring_enter(2)`.
///
/// # Safety
/// As that of `enter` in `sys/uring/kernel.rs`.
pub unsafe fn io_uring_enter(
    ring: c_int,
    to_submit: u32,
    want: u32,
    flags: u32,
    argument: *const c_void,
    argument_len: usize,
) -> c_long {
    let call = libc::SYS_io_uring_enter;
    // SAFETY: X1.
    unsafe { libc::syscall(call, ring, to_submit, want, flags, argument, argument_len) }
}

/// `io_uring_register(2)`.
///
/// # Safety
/// As that of `register` in `sys/uring/kernel.rs`.
pub unsafe fn io_uring_register(
    ring: c_int,
    opcode: u32,
    argument: *mut c_void,
    count: u32,
) -> c_long {
    // SAFETY: X1.
    unsafe { libc::syscall(libc::SYS_io_uring_register, ring, opcode, argument, count) }
}
