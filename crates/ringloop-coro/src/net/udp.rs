//! UDP: datagrams, one at a time.
//!
//! Owns: [`UdpSocket`]. Called by: coroutines.
//!
//! Byte path: by a system call on the caller's slice, and readiness where it would block. A
//! cancelled coroutine takes no datagram.

use super::lookup::{self, ToSocketAddrs};
use super::macros;
use super::socket::{Direction, Socket};
use ringloop::embed::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// A UDP socket.
pub struct UdpSocket {
    socket: Socket<std::net::UdpSocket>,
}

macros::socket!(UdpSocket, std::net::UdpSocket);
macros::timeouts!(UdpSocket);
macros::methods!(UdpSocket {
    /// Receives one datagram and its sender; what exceeds `into` is cut.
    read recv_from(into: &mut [u8]) -> (usize, SocketAddr);
    /// Receives like [`UdpSocket::recv_from`], without removing the datagram.
    read peek_from(into: &mut [u8]) -> (usize, SocketAddr);
    /// Sends one datagram to the peer.
    write send(bytes: &[u8]) -> usize;
    /// Receives one datagram from the peer.
    read recv(into: &mut [u8]) -> usize;
    /// Receives like [`UdpSocket::recv`], without removing the datagram.
    read peek(into: &mut [u8]) -> usize;
    /// The socket's address.
    direct local_addr() -> SocketAddr;
    /// The peer's address.
    direct peer_addr() -> SocketAddr;
    /// Allows datagrams to broadcast addresses.
    direct set_broadcast(on: bool) -> ();
    /// Whether datagrams may go to broadcast addresses.
    direct broadcast() -> bool;
    /// Sets the hops that a packet may take.
    direct set_ttl(ttl: u32) -> ();
    /// Hops that a packet may take.
    direct ttl() -> u32;
    /// Joins a multicast group.
    direct join_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Leaves a multicast group.
    direct leave_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Joins a multicast group.
    direct join_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
    /// Leaves a multicast group.
    direct leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
});

impl UdpSocket {
    /// Binds to the first address that is available; port 0 lets the system choose.
    ///
    /// # Errors
    /// Those of bind(2), for the last address.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        lookup::first(addr, |addr| std::net::UdpSocket::bind(addr)?.try_into())
    }

    /// Sets the peer: `send` goes to it, and only its datagrams are received.
    ///
    /// # Errors
    /// Those of connect(2), for the last address.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        lookup::first(addr, |addr| (*self.socket).connect(addr))
    }

    /// Sends one datagram to the first of the addresses; returns its length.
    ///
    /// # Errors
    /// Those of sendto(2), `EMSGSIZE` for a datagram that is too long.
    pub fn send_to(&self, bytes: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let Some(addr) = addr.to_socket_addrs()?.next() else {
            let message = "no addresses to send data to";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        self.socket.when_ready(Direction::Write, |socket| socket.send_to(bytes, addr))
    }

    /// Receives one datagram: for `select!`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn recv_from_async(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let recv = |socket: &std::net::UdpSocket| socket.recv_from(into);
        self.socket.when_ready_async(Direction::Read, recv).await
    }
}
