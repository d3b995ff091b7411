//! UDP: datagrams, one at a time.
//!
//! Byte path: by the call on the caller's slice, and readiness where it would block. A datagram is never taken for a
//! coroutine that is cancelled.

use super::lookup::{self, ToSocketAddrs};
use super::macros;
use super::socket::{Direction, Socket};
use ringloop::sys::interest::Interest;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// A UDP socket.
pub struct UdpSocket {
    socket: Socket<std::net::UdpSocket>,
}

macros::socket!(UdpSocket, std::net::UdpSocket);
macros::timeouts!(UdpSocket);

impl UdpSocket {
    /// A socket at the first of the addresses that can be had; port 0 lets the system choose.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        lookup::first(addr, |addr| std::net::UdpSocket::bind(addr)?.try_into())
    }

    /// Set the peer: `send` goes there, and only its datagrams come in.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        lookup::first(addr, |addr| (*self.socket).connect(addr))
    }

    /// Send one datagram to the first of the addresses; returns its length.
    pub fn send_to(&self, bytes: &[u8], addr: impl ToSocketAddrs) -> io::Result<usize> {
        let Some(addr) = addr.to_socket_addrs()?.next() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no addresses to send data to",
            ));
        };
        self.socket
            .when_ready(Direction::Write, |socket| socket.send_to(bytes, addr))
    }

    /// Receive one datagram, with where it came from; what is longer than `into` is cut.
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket
            .when_ready(Direction::Read, |socket| socket.recv_from(into))
    }

    /// Receive one datagram, as a future: for `select!`. Cancel safety: safe.
    pub async fn recv_from_async(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let recv = |socket: &std::net::UdpSocket| socket.recv_from(into);
        self.socket.when_ready_async(Direction::Read, recv).await
    }

    /// Receive as [`UdpSocket::recv_from`], and leave the datagram where it is.
    pub fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket
            .when_ready(Direction::Read, |socket| socket.peek_from(into))
    }

    /// Send one datagram to the peer.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket
            .when_ready(Direction::Write, |socket| socket.send(bytes))
    }

    /// Receive one datagram of the peer.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.socket
            .when_ready(Direction::Read, |socket| socket.recv(into))
    }

    /// Receive as [`UdpSocket::recv`], and leave the datagram where it is.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.socket
            .when_ready(Direction::Read, |socket| socket.peek(into))
    }

    /// The socket's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).peer_addr()
    }

    /// Let datagrams go to broadcast addresses.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        (*self.socket).set_broadcast(on)
    }

    /// Whether datagrams may go to broadcast addresses.
    pub fn broadcast(&self) -> io::Result<bool> {
        (*self.socket).broadcast()
    }

    /// Hops that a packet may take.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        (*self.socket).set_ttl(ttl)
    }

    /// Hops that a packet may take.
    pub fn ttl(&self) -> io::Result<u32> {
        (*self.socket).ttl()
    }

    /// Receive what goes to a group.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        (*self.socket).join_multicast_v4(group, interface)
    }

    /// Stop receiving what goes to a group.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        (*self.socket).leave_multicast_v4(group, interface)
    }

    /// Receive what goes to a group.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        (*self.socket).join_multicast_v6(group, interface)
    }

    /// Stop receiving what goes to a group.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        (*self.socket).leave_multicast_v6(group, interface)
    }
}
