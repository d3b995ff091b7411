//! Sockets: flags and options that only Linux has, or that have another name here.

pub use super::super::posix::{MSG_CMSG_CLOEXEC, SOCK_CLOEXEC, SOCK_NONBLOCK, recvmsg};

use super::super::errno::fail;
use super::super::not_linux::{SO_DOMAIN, SO_PROTOCOL};
use super::super::posix;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

/// By [`prepare_socket`].
pub const MSG_NOSIGNAL: c_int = 0;
/// The level of UDP's options.
pub const SOL_UDP: c_int = libc::IPPROTO_UDP;
/// The option for the local addresses of packets.
pub const IP_PKTINFO: c_int = libc::IP_PKTINFO;
/// The option that forbids fragments.
pub const IP_MTU_DISCOVER: c_int = libc::IP_DONTFRAG;
/// The option that forbids fragments.
pub const IPV6_MTU_DISCOVER: c_int = libc::IPV6_DONTFRAG;
/// The type of the control message with a received packet's type of service.
pub const IP_TOS_RECEIVED: c_int = libc::IP_RECVTOS;
/// Where a received `in_pktinfo` has the local address: the header's destination.
pub const PKTINFO_LOCAL_AT: usize = 8;
/// Length of an `in_pktinfo`.
pub const PKTINFO_LEN: usize = 12;
/// Where it has the source of a sent packet.
pub const PKTINFO_SOURCE_AT: usize = 4;
/// False: the type of service in a control message is an `int`.
pub const IP_TOS_IS_A_BYTE: bool = false;
/// Silence before the first probe, in seconds.
pub const TCP_KEEPIDLE: c_int = libc::TCP_KEEPALIVE;
/// Buffers of a vector (`IOV_MAX`).
pub const UIO_MAXIOV: c_int = 1024;

/// Sets up a socket that its caller has just made: a send to a closed peer raises no SIGPIPE.
pub fn prepare_socket(socket: RawFd) {
    let (on, len): (c_int, _) = (1, size_of::<c_int>() as libc::socklen_t);
    let at = (&raw const on).cast();
    // A failure is harmless: the runtimes of Rust and Python ignore SIGPIPE.
    // SAFETY: the value is live for the call.
    unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_NOSIGPIPE, at, len) };
}

/// socket(2) with flags in its kind.
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: no pointer is passed.
    let fd = unsafe { posix::socket(domain, kind, protocol) };
    if fd >= 0 {
        prepare_socket(fd);
    }
    fd
}

/// socketpair(2) with flags in its kind.
///
/// # Safety
/// `ends` is room for two descriptors.
pub unsafe fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int {
    // SAFETY: by this function's contract.
    let done = unsafe { posix::socketpair(domain, kind, protocol, ends) };
    if done == 0 {
        // SAFETY: the call has filled both.
        unsafe { *ends.cast::<[c_int; 2]>() }.into_iter().for_each(prepare_socket);
    }
    done
}

/// Fails: there are accept(2) and fcntl(2).
///
/// # Safety
/// None: it touches no argument.
pub unsafe fn accept4(
    _: c_int,
    _: *mut libc::sockaddr,
    _: *mut libc::socklen_t,
    _: c_int,
) -> c_int {
    fail(libc::ENOSYS)
}

/// getsockopt(2), with `SO_DOMAIN` and `SO_PROTOCOL`. The latter is the usual protocol of the socket's
/// kind: a ping socket is taken for a UDP one.
///
/// # Safety
/// As of getsockopt(2); `value` is room for an `int` with these two.
pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut libc::socklen_t,
) -> c_int {
    match (level, name) {
        // SAFETY: by this function's contract.
        (libc::SOL_SOCKET, SO_DOMAIN) => unsafe { posix::domain(fd, value.cast()) },
        (libc::SOL_SOCKET, SO_PROTOCOL) => {
            // SAFETY: by this function's contract.
            let done = unsafe { libc::getsockopt(fd, level, libc::SO_TYPE, value, len) };
            let at = value.cast::<c_int>();
            if done == 0 {
                // SAFETY: by this function's contract, and filled by the call.
                let kind = unsafe { *at };
                let usual = if kind == libc::SOCK_DGRAM { libc::IPPROTO_UDP } else { 0 };
                // SAFETY: by this function's contract.
                unsafe { *at = usual };
            }
            done
        }
        // SAFETY: by this function's contract.
        _ => unsafe { libc::getsockopt(fd, level, name, value, len) },
    }
}
