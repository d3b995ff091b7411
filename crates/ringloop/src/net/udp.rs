//! UDP: a socket for datagrams, one at a time, as they come, and many in one call.
//!
//! Byte path: out from the caller's bytes by `op::SendMsg`, or by `sys::datagram` in batches; in by
//! `op::RecvMsg` or, as they come, by [`Datagrams`].

use super::options;
use super::receive::Datagrams;
use super::socket::Socket;
use super::tcp::{descriptor, domain, from_descriptor, inet};
use crate::buf::RecvBuf;
use crate::executor::Op;
use crate::op::{Connect, Poll, RecvMsg};
use crate::sys::address::SockAddr;
use crate::sys::datagram::{self, Control, Outgoing, SendError, Train};
use crate::sys::interest::Interest;
use crate::sys::socket;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Socket,
    batch: Batch,
}

/// A step of a classic BPF program, by the numbers of linux/filter.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What is done.
    pub code: u16,
    /// Steps to pass over where a comparison holds.
    pub jump_true: u8,
    /// The same where it does not.
    pub jump_false: u8,
    /// An offset, a number, or how far an unconditional jump goes.
    pub value: u32,
}

/// What batches of datagrams on their way out need, used again and again.
#[derive(Default)]
struct Batch {
    outgoing: RefCell<Outgoing>,
    /// The route or the device does not take runs.
    unsegmented: Cell<bool>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl UdpSocket {
    /// A socket at `addr`; port 0 lets the system choose.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = Socket::open(domain(addr), libc::SOCK_DGRAM)?;
        socket::bind(socket.as_raw_fd(), &SockAddr::from(addr))?;
        Ok(socket.into())
    }

    /// A socket at `addr` that others, on other threads, share; the kernel spreads peers over them
    /// (`SO_REUSEPORT`).
    pub fn bind_reuse_port(addr: SocketAddr) -> io::Result<Self> {
        let socket = Socket::open(domain(addr), libc::SOCK_DGRAM)?;
        socket::set_reuse_port(socket.as_raw_fd(), true)?;
        socket::bind(socket.as_raw_fd(), &SockAddr::from(addr))?;
        Ok(socket.into())
    }

    /// Have a program choose which of the sockets that share this one's address gets a datagram; it sees the payload, and
    /// returns the socket's place in the order of binding (`SO_ATTACH_REUSEPORT_CBPF`). For all of them at once.
    ///
    /// Errors: `EINVAL` for a program that the kernel refuses.
    pub fn set_reuse_port_program(&self, program: &[Instruction]) -> io::Result<()> {
        let steps: Vec<libc::sock_filter> = program
            .iter()
            .map(|step| libc::sock_filter {
                code: step.code,
                jt: step.jump_true,
                jf: step.jump_false,
                k: step.value,
            })
            .collect();
        socket::set_reuse_port_program(self.socket.as_raw_fd(), &steps)
    }

    /// Set the peer: `send` goes there, and only its datagrams come in.
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        Op::new(Connect::new(self.socket.on_loop(), addr.into())).await
    }

    /// Send one datagram to `to`; returns its length.
    ///
    /// Errors: `EMSGSIZE`, `ECONNREFUSED` of an earlier datagram, and those of sendmsg(2).
    pub async fn send_to(&self, bytes: Vec<u8>, to: SocketAddr) -> (io::Result<usize>, Vec<u8>) {
        self.socket.send_datagram(bytes, Some(to.into())).await
    }

    /// Send one datagram to the peer.
    pub async fn send(&self, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.send_datagram(bytes, None).await
    }

    /// Receive one datagram, with where it came from. One that is longer than the capacity of `buf` is
    /// cut.
    ///
    /// Cancel safety: a datagram taken while the future was being dropped is lost.
    pub async fn recv_from(&self, buf: Vec<u8>) -> (io::Result<(usize, SocketAddr)>, Vec<u8>) {
        let recv = RecvMsg::new(self.socket.on_loop(), RecvBuf::from(buf));
        let (source, buf) = Op::new(recv).await;
        let bytes = buf.into_vec();
        let received = source.and_then(inet).map(|source| (bytes.len(), source));
        (received, bytes)
    }

    /// Receive one datagram of the peer.
    pub async fn recv(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.recv(buf).await
    }

    /// Receive as [`UdpSocket::recv`], and leave the datagram where it is.
    pub async fn peek(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.peek(buf).await
    }

    /// Receive datagrams as they come, by one multishot receive, without a buffer of one's own.
    pub fn datagrams(&self) -> Datagrams<'_> {
        Datagrams::new(&self.socket, Control::Wanted)
    }

    /// Send datagrams in order, all of them; runs of equal ones to one peer travel as one message where the
    /// route takes that (`UDP_SEGMENT`). Returns how many went out, which is fewer only with an error.
    ///
    /// Shape: those without an address go to the peer.
    /// Source: sendmmsg(2), udp(7).
    pub async fn send_batch(
        &self,
        datagrams: &[(&[u8], Option<SocketAddr>)],
    ) -> (usize, io::Result<()>) {
        let to: Vec<Option<SockAddr>> = datagrams
            .iter()
            .map(|(_, to)| to.map(SockAddr::from))
            .collect();
        let mut sent_count = 0;
        while sent_count < datagrams.len() {
            let fd = self.socket.on_loop();
            let left = datagrams[sent_count..].iter().zip(&to[sent_count..]);
            let left = left.map(|((bytes, _), to)| (*bytes, to.as_ref()));
            let segmented = !self.batch.unsegmented.get();
            let sent = self.batch.outgoing.borrow_mut().send(fd, left, segmented);
            match sent {
                Ok(count) => sent_count += count,
                Err(error) if error.is_of_segmentation() => self.batch.unsegmented.set(true),
                Err(error) if error.error.kind() == io::ErrorKind::WouldBlock => {
                    let poll = Poll {
                        fd,
                        interest: Interest::WRITE,
                        level: false,
                    };
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

    /// Send a train of datagrams now, or none of it, without waiting.
    ///
    /// Errors: `EAGAIN` where the socket's buffer is full ([`UdpSocket::writable`] waits);
    /// [`SendError::is_of_segmentation`] where the route does not take trains; those of sendmsg(2).
    /// Source: sendmsg(2); `UDP_SEGMENT`, kernel 4.18.
    pub fn try_send_train(&self, train: &Train<'_>) -> Result<(), SendError> {
        datagram::send_train(self.socket.as_raw_fd(), train)
    }

    /// Wait until the socket's buffer has room for what is to be sent.
    pub async fn writable(&self) -> io::Result<()> {
        let poll = Poll {
            fd: self.socket.on_loop(),
            interest: Interest::WRITE,
            level: false,
        };
        Op::new(poll).await.map(drop)
    }

    /// Have datagrams tell the bits of congestion notification that they came with.
    pub fn set_receive_ecn(&self, on: bool) -> io::Result<()> {
        datagram::set_receive_ecn(self.socket.as_raw_fd(), on)
    }

    /// Have datagrams tell the address that they were sent to.
    pub fn set_receive_local_ip(&self, on: bool) -> io::Result<()> {
        datagram::set_receive_local_ip(self.socket.as_raw_fd(), on)
    }

    /// Never have packets fragmented; one that is too long for the device is `EMSGSIZE`
    /// (`IP_PMTUDISC_PROBE`). For protocols that find the path's MTU themselves.
    pub fn set_unfragmented(&self) -> io::Result<()> {
        datagram::set_unfragmented(self.socket.as_raw_fd())
    }

    /// Have trains of equal datagrams of one sender come as one (`UDP_GRO`); see [`Datagrams`].
    ///
    /// Errors: `ENOPROTOOPT` before Linux 5.0.
    pub fn set_receive_trains(&self, on: bool) -> io::Result<()> {
        datagram::set_receive_trains(self.socket.as_raw_fd(), on)
    }

    /// Let datagrams go to broadcast addresses.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        let fd = self.socket.as_raw_fd();
        socket::set_option_int(fd, libc::SOL_SOCKET, libc::SO_BROADCAST, on.into())
    }

    /// Hops that a packet may take (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        options::set_ttl(self.socket.as_raw_fd(), ttl)
    }

    /// Size of the kernel's buffer for what is to be sent, in bytes; it doubles what it is told.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        options::set_send_buffer(self.socket.as_raw_fd(), bytes)
    }

    /// Size of the kernel's buffer for what was received, in bytes; it doubles what it is told.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        options::set_receive_buffer(self.socket.as_raw_fd(), bytes)
    }

    /// This end's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(socket::local_addr(self.socket.as_raw_fd())?)
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(socket::peer_addr(self.socket.as_raw_fd())?)
    }
}

impl From<Socket> for UdpSocket {
    fn from(socket: Socket) -> Self {
        Self {
            socket,
            batch: Batch::default(),
        }
    }
}

descriptor!(UdpSocket);
from_descriptor!(UdpSocket, std::net::UdpSocket);
