//! One message of several datagrams that are contiguous in memory, with what a protocol on UDP sets
//! for each: the source address and the ECN bits.
//!
//! Byte path: from the caller's bytes to the kernel.

use super::send::{SendError, send_with_control};
use crate::sys::address::SockAddr;
use crate::sys::control::{Controls, space};
use crate::sys::fd::RawFd;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::socket;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Datagrams of one length (the last may be shorter) to one peer, end to end in memory.
#[derive(Debug, Clone, Copy)]
pub struct GsoBatch<'a> {
    /// All bytes; at most 65,507 bytes and 64 datagrams.
    pub bytes: &'a [u8],
    /// Segment size (`UDP_SEGMENT`); `None`, or at least the length of `bytes`: one datagram.
    pub segment_len: Option<u16>,
    /// The destination.
    pub to: SocketAddr,
    /// The local address to send from; with `None`, or an address of another family than `to`'s,
    /// the route decides.
    pub source: Option<IpAddr>,
    /// The ECN bits (RFC 3168).
    pub ecn: u8,
}

/// Room for segment size, type of service and packet info.
const ROOM: usize = space(2) + space(4) + space(20);

/// What goes with a batch.
fn controls_of(batch: &GsoBatch<'_>) -> Controls<ROOM> {
    let mut controls = Controls::empty();
    if let Some(len) = segment_len(batch) {
        controls.push(platform::SOL_UDP, platform::UDP_SEGMENT, &len.to_ne_bytes());
    }
    if batch.ecn != 0 {
        let bits = i32::from(batch.ecn & 3).to_ne_bytes();
        // The kernel looks at the packet's protocol, not at the socket's family.
        match batch.to.ip().to_canonical() {
            IpAddr::V4(_) if platform::IP_TOS_IS_A_BYTE => {
                controls.push(libc::IPPROTO_IP, libc::IP_TOS, &[batch.ecn & 3]);
            }
            IpAddr::V4(_) => controls.push(libc::IPPROTO_IP, libc::IP_TOS, &bits),
            IpAddr::V6(_) => controls.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &bits),
        }
    }
    // The kernel refuses a packet of one family with a source of the other; an IPv4 address may
    // be mapped here.
    let is_v4 = |ip: IpAddr| ip.to_canonical().is_ipv4();
    let fits = |source: &IpAddr| is_v4(*source) == is_v4(batch.to.ip());
    match batch.source.filter(fits) {
        // struct in_pktinfo: the source, without an interface.
        Some(IpAddr::V4(v4)) => {
            let mut info = [0; platform::PKTINFO_LEN];
            info[platform::PKTINFO_SOURCE_AT..][..4].copy_from_slice(&v4.octets());
            controls.push(libc::IPPROTO_IP, platform::IP_PKTINFO, &info);
        }
        // struct in6_pktinfo: the source, the interface.
        Some(IpAddr::V6(v6)) => {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&v6.octets());
            controls.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
        None => {}
    }
    controls
}

fn segment_len(batch: &GsoBatch<'_>) -> Option<u16> {
    let len = batch.segment_len?;
    (usize::from(len) < batch.bytes.len()).then_some(len)
}

/// Sends a GSO batch, or a single datagram. See sendmsg(2), udp(7), ip(7), ipv6(7).
///
/// # Errors
/// As [`SendError`]; `EAGAIN`, `EMSGSIZE`, and those of sendmsg(2).
pub fn send_gso(fd: RawFd, batch: &GsoBatch<'_>) -> Result<(), SendError> {
    if !platform::HAS_SEGMENTATION && segment_len(batch).is_some() {
        let error = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        return Err(SendError { error, segmented: true });
    }
    let to = SockAddr::from(batch.to);
    match send_with_control(fd, batch.bytes, &to, controls_of(batch).as_slice()) {
        Ok(_) => Ok(()),
        Err(error) => Err(SendError { error, segmented: segment_len(batch).is_some() }),
    }
}

/// Enables or disables the ECN bits in received messages ([`super::Message::ecn`]).
pub fn set_receive_ecn(fd: RawFd, on: bool) -> io::Result<()> {
    set_both(fd, (libc::IPV6_RECVTCLASS, i32::from(on)), (libc::IP_RECVTOS, i32::from(on)))
}

/// Enables or disables the local address in received messages ([`super::Message::local_ip`]).
pub fn set_receive_local_ip(fd: RawFd, on: bool) -> io::Result<()> {
    let on = i32::from(on);
    if is_v6(fd)? {
        return socket::set_option_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, on);
    }
    socket::set_option_int(fd, libc::IPPROTO_IP, platform::IP_PKTINFO, on)
}

/// Disables fragmentation and leaves path MTU discovery to the protocol above
/// (`IP_PMTUDISC_PROBE`): a datagram longer than the device's MTU is `EMSGSIZE`.
pub fn set_unfragmented(fd: RawFd) -> io::Result<()> {
    let v6 = (platform::IPV6_MTU_DISCOVER, platform::IPV6_PMTUDISC_PROBE);
    set_both(fd, v6, (platform::IP_MTU_DISCOVER, platform::IP_PMTUDISC_PROBE))
}

/// Sets the option of a socket's family, by name and value.
pub(super) fn set_both(fd: RawFd, v6: (i32, i32), v4: (i32, i32)) -> io::Result<()> {
    let set_v4 = || socket::set_option_int(fd, libc::IPPROTO_IP, v4.0, v4.1);
    if !is_v6(fd)? {
        return set_v4();
    }
    socket::set_option_int(fd, libc::IPPROTO_IPV6, v6.0, v6.1)?;
    // IPv4 on a dual-stack socket; an IPv6-only socket may refuse it.
    drop(set_v4());
    Ok(())
}

fn is_v6(fd: RawFd) -> io::Result<bool> {
    Ok(i32::from(socket::local_addr(fd)?.family()) == libc::AF_INET6)
}
