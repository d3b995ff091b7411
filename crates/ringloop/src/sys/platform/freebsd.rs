//! FreeBSD 13 and newer, whose C library has the socket calls of Linux under the same names.

pub use super::bsd::*;

pub use libc::{
    IP_DONTFRAG as IP_MTU_DISCOVER, IP_RECVDSTADDR as IP_PKTINFO, IP_RECVTOS as IP_TOS_RECEIVED,
    IPPROTO_UDP as SOL_UDP, IPV6_DONTFRAG as IPV6_MTU_DISCOVER, MSG_CMSG_CLOEXEC, MSG_NOSIGNAL,
    SO_DOMAIN, SO_PROTOCOL, SOCK_CLOEXEC, SOCK_NONBLOCK, TCP_KEEPIDLE,
};
pub use libc::{accept4, fdatasync, fsync, getsockopt, pipe2, recvmsg, socket, socketpair};

use super::errno::fail;
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::os::fd::RawFd;

/// The monotonic clock of the standard libraries of Rust and Python.
pub const CLOCK_MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;
/// True: the type of service in a control message is a byte.
pub const IP_TOS_IS_A_BYTE: bool = true;
/// The local address of a received packet is all that its control message has.
pub const PKTINFO_LOCAL_AT: usize = 0;
/// Length of an `in_addr`.
pub const PKTINFO_LEN: usize = 4;
/// A sent packet has its source in the same message (`IP_SENDSRCADDR` is the same number).
pub const PKTINFO_SOURCE_AT: usize = 0;
/// Buffers of a vector (`IOV_MAX`).
pub const UIO_MAXIOV: c_int = 1024;
/// No number of a device tells what it is.
pub const MEMORY_DEVICES: u32 = u32::MAX;
/// The call of [`exclude_from_fork`].
pub const EXCLUDE_FROM_FORK: &str = "minherit";

/// Sets up a socket that its caller has just made.
pub fn prepare_socket(_socket: RawFd) {}

/// minherit(2), `INHERIT_NONE`.
///
/// # Safety
/// The range is a mapping of the caller's.
pub unsafe fn exclude_from_fork(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { libc::minherit(at, len, libc::INHERIT_NONE) }
}

/// renameat(2); flags are not supported.
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
    if flags != 0 {
        return c_long::from(fail(libc::EINVAL));
    }
    // SAFETY: by this function's contract.
    c_long::from(unsafe { libc::renameat(from_dir, from, to_dir, to) })
}
