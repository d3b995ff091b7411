//! What Linux alone has, for the systems that lack it: options with numbers of ours, which the kernel refuses.

use crate::sys::libc;
use std::ffi::c_int;

/// No flag of this system: see [`HAS_ERROR_QUEUE`].
pub const MSG_ERRQUEUE: c_int = 0;
/// False: a receive with [`MSG_ERRQUEUE`] would take a datagram.
pub const HAS_ERROR_QUEUE: bool = false;
/// By `getsockopt`.
#[cfg(not(target_os = "freebsd"))]
pub const SO_DOMAIN: c_int = -1;
/// By `getsockopt`.
#[cfg(not(target_os = "freebsd"))]
pub const SO_PROTOCOL: c_int = -2;
/// No option of this system.
pub const SO_ATTACH_REUSEPORT_CBPF: c_int = -3;
/// No option of this system.
pub const UDP_GRO: c_int = -1;
/// No option of this system.
pub const UDP_SEGMENT: c_int = -2;
/// No option of this system.
pub const IP_RECVERR: c_int = -1;
/// No option of this system.
pub const IPV6_RECVERR: c_int = -1;
/// The value of `IP_MTU_DISCOVER`.
pub const IP_PMTUDISC_PROBE: c_int = 1;
/// The value of `IPV6_MTU_DISCOVER`.
pub const IPV6_PMTUDISC_PROBE: c_int = 1;
/// False: the flags of a new socket are ours, and Python does not know them.
pub const HAS_SOCKET_FLAGS: bool = false;
/// False: a control message with [`UDP_SEGMENT`] would be ignored.
pub const HAS_SEGMENTATION: bool = false;
/// False: a name is a file's.
pub const HAS_ABSTRACT_NAMES: bool = false;

/// A message, and the length that was received.
#[repr(C)]
#[allow(missing_debug_implementations, non_camel_case_types)]
pub struct mmsghdr {
    /// The message.
    pub msg_hdr: libc::msghdr,
    /// Its length.
    pub msg_len: u32,
}
