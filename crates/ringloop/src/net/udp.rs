//! UDP: a socket for datagrams, one at a time, as they come, and many in one call.
//!
//! Byte path: out from the caller's bytes by `op::SendMsg`, or by `sys::datagram` in batches; in by
//! `op::RecvMsg` or, as they come, by [`Datagrams`].

use super::addresses::ToSocketAddrs;
use super::macros::{descriptor, from_descriptor, internet};
use super::options;
use super::receive::Datagrams;
use super::socket::Socket;
use super::tcp::{domain, inet};
use crate::buf::RecvBuf;
use crate::executor::{Local, Op};
use crate::op::{Connect, Poll, RecvMsg};
use crate::sys::address::SockAddr;
use crate::sys::datagram::{self, Control, Outgoing};
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use crate::sys::interest::Interest;
use crate::sys::libc;
use crate::sys::platform;
use crate::sys::socket;
use crate::time::yield_now;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    batch: Batch,
}

/// A step of a classic BPF program, by the numbers of linux/filter.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Steps to skip if a comparison is true.
    pub jump_true: u8,
    /// Steps to skip if it is false.
    pub jump_false: u8,
    /// An offset, a number, or the distance of an unconditional jump.
    pub value: u32,
}

/// Reused memory of outgoing batches.
#[derive(Default)]
struct Batch {
    outgoing: RefCell<Outgoing>,
    /// The route or the device refuses segmented messages.
    unsegmented: Cell<bool>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl UdpSocket {
    /// A socket at the first of `addrs` that can be bound; port 0 lets the system choose.
    ///
    /// # Errors
    /// Those of bind(2) for the last address, and of [`lookup_host`](super::lookup_host); `InvalidInput`
    /// without addresses.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is bound.
    pub async fn bind(addrs: impl ToSocketAddrs) -> io::Result<Self> {
        addrs.targets().first(async |addr| Self::bind_addr(addr)).await
    }

    /// A socket at `addr`, as [`UdpSocket::bind`], without a runtime.
    ///
    /// # Errors
    /// Those of bind(2).
    pub fn bind_addr(addr: SocketAddr) -> io::Result<Self> {
        let socket = Socket::open(domain(addr), libc::SOCK_DGRAM)?;
        socket::bind(socket.as_raw_fd(), &SockAddr::from(addr))?;
        Ok(socket.into())
    }

    /// A socket at `addr`, shared with sockets of other threads; the kernel spreads the peers over
    /// them (`SO_REUSEPORT`).
    pub fn bind_reuse_port(addr: SocketAddr) -> io::Result<Self> {
        let socket = Socket::open(domain(addr), libc::SOCK_DGRAM)?;
        socket::set_reuse_port(socket.as_raw_fd(), true)?;
        socket::bind(socket.as_raw_fd(), &SockAddr::from(addr))?;
        Ok(socket.into())
    }

    /// Attaches a program that chooses the socket for a datagram, for all sockets that share this
    /// address (`SO_ATTACH_REUSEPORT_CBPF`).
    ///
    /// It reads the payload and returns an index in the order of binding.
    ///
    /// # Errors
    /// `EINVAL` for a program that the kernel refuses.
    pub fn set_reuse_port_program(&self, program: &[Instruction]) -> io::Result<()> {
        let steps: Vec<platform::sock_filter> = program
            .iter()
            .map(|step| platform::sock_filter {
                code: step.code,
                jt: step.jump_true,
                jf: step.jump_false,
                k: step.value,
            })
            .collect();
        socket::set_reuse_port_program(self.socket.as_raw_fd(), &steps)
    }

    /// Sets the peer: `send` goes there, and only its datagrams are received.
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        Op::new(Connect::new(self.socket.on_loop(), addr.into())).await
    }

    /// Sends one datagram to `to`; returns its length.
    ///
    /// # Errors
    /// `EMSGSIZE`, `ECONNREFUSED` of an earlier datagram, and those of sendmsg(2).
    pub async fn send_to(&self, bytes: Vec<u8>, to: SocketAddr) -> (io::Result<usize>, Vec<u8>) {
        self.socket.send_datagram(bytes, Some(to.into())).await
    }

    /// Sends one datagram to the peer.
    pub async fn send(&self, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.send_datagram(bytes, None).await
    }

    /// Receives one datagram and its source; bytes beyond the capacity of `buf` are cut.
    ///
    /// # Cancel safety
    /// A datagram that arrives while the future is dropped is lost.
    pub async fn recv_from(&self, buf: Vec<u8>) -> (io::Result<(usize, SocketAddr)>, Vec<u8>) {
        let recv = RecvMsg::new(self.socket.on_loop(), RecvBuf::from(buf));
        let (source, buf) = Op::new(recv).await;
        let bytes = buf.into_vec();
        let received = source.and_then(inet).map(|source| (bytes.len(), source));
        (received, bytes)
    }

    /// Receives one datagram from the peer.
    pub async fn recv(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.recv(buf).await
    }

    /// As [`UdpSocket::recv`], without removing the datagram.
    pub async fn peek(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.peek(buf).await
    }

    /// Receives datagrams by one multishot receive into the loop's buffers.
    pub fn datagrams(&self) -> Datagrams<'_> {
        Datagrams::new(&self.socket, Control::Wanted)
    }

    /// Sends all datagrams in order; equal ones to one peer go as one GSO batch if the route
    /// allows it (`UDP_SEGMENT`). Returns the count sent, which is smaller only with an error.
    ///
    /// Datagrams without an address go to the peer. See sendmmsg(2), udp(7).
    pub async fn send_batch(
        &self,
        datagrams: &[(&[u8], Option<SocketAddr>)],
    ) -> (usize, io::Result<()>) {
        let to: Vec<Option<SockAddr>> =
            datagrams.iter().map(|(_, to)| to.map(SockAddr::from)).collect();
        let mut sent_count = 0;
        while sent_count < datagrams.len() {
            if !Local::spend_budget() {
                yield_now().await;
            }
            let fd = self.socket.on_loop();
            let left = datagrams[sent_count..].iter().zip(&to[sent_count..]);
            let left = left.map(|((bytes, _), to)| (*bytes, to.as_ref()));
            let segmented = !self.batch.unsegmented.get();
            let sent = self.batch.outgoing.borrow_mut().send(fd, left, segmented);
            match sent {
                Ok(count) => sent_count += count,
                Err(error) if error.is_of_segmentation() => self.batch.unsegmented.set(true),
                Err(error) if error.error.kind() == io::ErrorKind::WouldBlock => {
                    let poll = Poll { fd, interest: Interest::WRITE, level: false };
                    if let Err(error) = Op::new(poll).await {
                        return (sent_count, Err(error));
                    }
                }
                Err(error) if error.error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (sent_count, Err(error.error)),
            }
        }
        (sent_count, Ok(()))
    }

    /// Waits until the send buffer has room.
    pub async fn writable(&self) -> io::Result<()> {
        let poll = Poll { fd: self.socket.on_loop(), interest: Interest::WRITE, level: false };
        Op::new(poll).await.map(drop)
    }

    /// Reports the congestion notification bits (ECN) of received datagrams.
    pub fn set_receive_ecn(&self, on: bool) -> io::Result<()> {
        datagram::set_receive_ecn(self.socket.as_raw_fd(), on)
    }

    /// Reports the destination address of received datagrams.
    pub fn set_receive_local_ip(&self, on: bool) -> io::Result<()> {
        datagram::set_receive_local_ip(self.socket.as_raw_fd(), on)
    }

    /// Disables fragmentation; a packet too long for the device fails with `EMSGSIZE`
    /// (`IP_PMTUDISC_PROBE`). For protocols with path MTU discovery.
    pub fn set_unfragmented(&self) -> io::Result<()> {
        datagram::set_unfragmented(self.socket.as_raw_fd())
    }

    /// Receives equal datagrams of one sender as one GRO batch (`UDP_GRO`); see [`Datagrams`].
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 5.0.
    pub fn set_gro(&self, on: bool) -> io::Result<()> {
        datagram::set_gro(self.socket.as_raw_fd(), on)
    }

    /// Lets datagrams go to broadcast addresses.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        let fd = self.socket.as_raw_fd();
        socket::set_option_int(fd, libc::SOL_SOCKET, libc::SO_BROADCAST, on.into())
    }
}

impl From<Socket> for UdpSocket {
    fn from(socket: Socket) -> Self {
        Self { socket, batch: Batch::default() }
    }
}

internet!(UdpSocket);
descriptor!(UdpSocket);
from_descriptor!(UdpSocket, std::net::UdpSocket);
