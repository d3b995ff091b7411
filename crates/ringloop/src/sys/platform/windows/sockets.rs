//! Sockets: flags and options that only Linux has, or that have another name here.

use super::super::super::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use super::super::super::libc::{
    self, FIONBIO, c_int, c_void, iovec, make_socket, sockaddr, socklen_t,
};
use std::io::IoSlice;
use windows_sys::Win32::Networking::WinSock;

use super::super::not_linux::{SO_DOMAIN, SO_PROTOCOL};

pub use super::super::super::libc::recvmsg;

/// A flag of ours, as there is none. It is taken out again before a call.
pub const SOCK_CLOEXEC: c_int = 0x2000_0000;
/// As [`SOCK_CLOEXEC`].
pub const SOCK_NONBLOCK: c_int = 0x4000_0000;
/// No descriptor comes with a message.
pub const MSG_CMSG_CLOEXEC: c_int = 0;
/// There is no SIGPIPE.
pub const MSG_NOSIGNAL: c_int = 0;
/// The level of UDP's options.
pub const SOL_UDP: c_int = WinSock::IPPROTO_UDP;
/// The option for the local addresses of packets.
pub const IP_PKTINFO: c_int = WinSock::IP_PKTINFO;
/// The option that forbids fragments.
pub const IP_MTU_DISCOVER: c_int = WinSock::IP_DONTFRAGMENT;
/// The option that forbids fragments.
pub const IPV6_MTU_DISCOVER: c_int = WinSock::IPV6_DONTFRAG;
/// The type of the control message with a received packet's ECN bits.
pub const IP_TOS_RECEIVED: c_int = WinSock::IP_ECN;
/// Where a received `in_pktinfo` has the local address, which comes first here.
pub const PKTINFO_LOCAL_AT: usize = 0;
/// Length of an `in_pktinfo`.
pub const PKTINFO_LEN: usize = 8;
/// Where it has the source of a sent packet.
pub const PKTINFO_SOURCE_AT: usize = 0;
/// False: the type of service in a control message is an `int`.
pub const IP_TOS_IS_A_BYTE: bool = false;
/// Silence before the first probe, in seconds.
pub const TCP_KEEPIDLE: c_int = WinSock::TCP_KEEPIDLE;

/// Sets up a socket that its caller has just made.
pub fn prepare_socket(_socket: RawFd) {}

/// The vector of buffers that std has in Winsock's form.
pub fn vector_of(buffers: &[IoSlice<'_>]) -> Vec<iovec> {
    let entry = |bytes: &IoSlice<'_>| iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    buffers.iter().map(entry).collect()
}

/// socket(2) with flags in its kind.
///
/// # Safety
/// None; it is a function of C.
pub unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    make_socket(domain, kind & !flags, protocol, kind & SOCK_NONBLOCK != 0)
}

/// accept4(2).
///
/// # Safety
/// As of accept(2).
pub unsafe fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    let new = unsafe { libc::accept(fd, address, len) };
    if new < 0 {
        return new;
    }
    // SAFETY: it is new, and nothing else knows it.
    let new = unsafe { OwnedFd::from_raw_fd(new) };
    let mut on = c_int::from(flags & SOCK_NONBLOCK != 0);
    // SAFETY: the value is live for the call.
    if unsafe { libc::ioctl(new.as_raw_fd(), FIONBIO, &raw mut on) } < 0 {
        return -1;
    }
    crate::sys::fd::IntoRawFd::into_raw_fd(new)
}

/// getsockopt(2), with `SO_DOMAIN` and `SO_PROTOCOL`.
///
/// # Safety
/// As of getsockopt(2); `value` is room for an `int` with these two.
pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if level != libc::SOL_SOCKET || !matches!(name, SO_DOMAIN | SO_PROTOCOL) {
        // SAFETY: by this function's contract.
        return unsafe { libc::getsockopt(fd, level, name, value, len) };
    }
    let mut info = std::mem::MaybeUninit::<WinSock::WSAPROTOCOL_INFOW>::zeroed();
    let mut room = size_of_val(&info) as socklen_t;
    let at = info.as_mut_ptr().cast();
    // SAFETY: the structure and its length are live for the call.
    let done =
        unsafe { libc::getsockopt(fd, level, WinSock::SO_PROTOCOL_INFOW, at, &raw mut room) };
    if done == 0 {
        // SAFETY: it holds only integers, and the call has filled it.
        let info = unsafe { info.assume_init() };
        let told = if name == SO_DOMAIN { info.iAddressFamily } else { info.iProtocol };
        // SAFETY: by this function's contract.
        unsafe { *value.cast::<c_int>() = told };
    }
    done
}
