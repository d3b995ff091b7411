//! A socket's error queue: errors that the network or this host returned for datagrams sent
//! earlier.
//!
//! While the queue is enabled, such an error also fails one send or receive on the socket, whatever its
//! address, and poll reports `POLLERR` until it is taken from the queue.

use super::message::control_of;
use super::receive::receive_control;
use crate::sys::address::SockAddr;
use crate::sys::fd::RawFd;
use crate::sys::libc;
use crate::sys::platform;
use std::io;
use std::net::SocketAddr;

/// Words of room for control data: the error takes 64 bytes, packet info and type of service of
/// both families 120.
const CONTROL_WORDS: usize = 32;

/// An error returned for a datagram.
#[derive(Debug)]
pub struct NetworkError {
    /// Where the datagram went.
    pub to: SocketAddr,
    /// The errno: `ECONNREFUSED` for a closed port.
    pub errno: i32,
}

/// Enables or disables the error queue for [`next_error`]; disabling drops its contents. See ip(7),
/// `IP_RECVERR`; ipv6(7), `IPV6_RECVERR`.
pub fn set_receive_errors(fd: RawFd, on: bool) -> io::Result<()> {
    let on = i32::from(on);
    super::gso::set_both(fd, (platform::IPV6_RECVERR, on), (platform::IP_RECVERR, on))
}

/// Takes the next error; skips entries of other kinds. See recvmsg(2), `MSG_ERRQUEUE`.
///
/// # Errors
/// `EAGAIN` if there is none, and those of recvmsg(2).
pub fn next_error(fd: RawFd) -> io::Result<NetworkError> {
    if !platform::HAS_ERROR_QUEUE {
        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
    }
    loop {
        let mut name = SockAddr::empty();
        let mut control = [0_u64; CONTROL_WORDS];
        let flags = platform::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        let control_len = receive_control(fd, &mut name, &mut control, flags)?;
        let control = control.map(u64::to_ne_bytes);
        let control = &control.as_flattened()[..control_len];
        if let (Some(to), Some(errno)) = (name.to_std(), errno_of(control)) {
            return Ok(NetworkError { to, errno });
        }
    }
}

/// The first field of `struct sock_extended_err`.
fn errno_of(control: &[u8]) -> Option<i32> {
    let data = control_of(control, libc::IPPROTO_IP, platform::IP_RECVERR)
        .or_else(|| control_of(control, libc::IPPROTO_IPV6, platform::IPV6_RECVERR))?;
    Some(i32::from_ne_bytes(data.get(..4)?.try_into().ok()?))
}
