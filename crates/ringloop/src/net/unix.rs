//! Unix sockets: listener, stream and datagrams, by path or abstract name; pairs.
//!
//! A dropped listener leaves its file behind, as std's does; abstract names leave nothing.

use super::incoming::{self, Incoming};
use super::macros::{descriptor, from_descriptor, from_listener, from_socket, stream};
use super::receive::{Datagrams, Receive};
use super::socket::Socket;
use super::split::{OnSocket, ReadHalf, WriteHalf};
use crate::buf::{Outgoing, RecvBuf};
use crate::executor::Op;
use crate::limits;
use crate::op::{Connect, Descriptors, Recv, RecvDescriptors, RecvMsg, SendDescriptors};
use crate::sys::address::{SockAddr, UnixName};
use crate::sys::datagram::Control;
use crate::sys::descriptors::DESCRIPTORS_MAX;
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd, unix_net};
use crate::sys::libc;
use crate::sys::socket;
use crate::time::sleep;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;

/// Listens for Unix connections.
///
/// See [`TcpListener`](super::TcpListener) for sharing.
#[derive(Debug)]
pub struct UnixListener {
    socket: Socket,
}

impl UnixListener {
    /// Listens at `name`, with the system's largest backlog.
    ///
    /// # Errors
    /// `EADDRINUSE`, also for the file of an earlier listener; `ENAMETOOLONG` over 107 bytes.
    pub fn bind<'a>(name: impl Into<UnixName<'a>>) -> io::Result<Self> {
        let socket = bound(libc::SOCK_STREAM, name.into())?;
        socket::listen(socket.as_raw_fd(), libc::SOMAXCONN)?;
        Ok(Self { socket })
    }

    /// Accepts one connection.
    ///
    /// # Errors
    /// As [`TcpListener::accept`](super::TcpListener::accept).
    ///
    /// # Cancel safety
    /// A connection accepted while the future is dropped is closed.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(incoming::accept(&self.socket).await?.into())
    }

    /// Accepts by one multishot accept; only for a listener that is not shared.
    pub fn incoming(&self) -> Incoming<'_, UnixStream> {
        Incoming::new(&self.socket)
    }

    /// The name it listens at; see [`SockAddr::to_unix`].
    pub fn local_addr(&self) -> io::Result<SockAddr> {
        socket::local_addr(self.socket.as_raw_fd())
    }
}

/// A Unix connection.
#[derive(Debug)]
pub struct UnixStream {
    pub(super) socket: Socket,
}

impl UnixStream {
    /// Connects to the listener at `name`.
    ///
    /// Waits while the listener's backlog is full; limit it by [`crate::time::timeout`]. No event
    /// reports room: it retries every few milliseconds.
    ///
    /// # Errors
    /// `ENOENT`, `ECONNREFUSED` without a listener, and those of connect(2).
    pub async fn connect<'a>(name: impl Into<UnixName<'a>>) -> io::Result<Self> {
        let address = SockAddr::unix(name.into())?;
        let socket = Socket::open(libc::AF_UNIX, libc::SOCK_STREAM)?;
        let mut pause = limits::CONNECT_PAUSE_MIN;
        loop {
            match Op::new(Connect::new(socket.on_loop(), address.clone())).await {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    sleep(pause).await;
                    pause = (pause * 2).min(limits::CONNECT_PAUSE_MAX);
                }
                connected => return connected.map(|()| Self { socket }),
            }
        }
    }

    /// Two connected streams.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socket::pair(libc::SOCK_STREAM)?;
        Ok((one.into(), other.into()))
    }

    /// Sends `bytes`, at least one, with at most 253 descriptors; returns the byte count. The
    /// descriptors are returned: the receiver gets duplicates. See unix(7), `SCM_RIGHTS`.
    ///
    /// # Errors
    /// `ETOOMANYREFS` if too many are in flight, and those of sendmsg(2).
    pub async fn send_descriptors(
        &self,
        bytes: Vec<u8>,
        descriptors: Vec<OwnedFd>,
    ) -> (io::Result<usize>, Vec<u8>, Vec<OwnedFd>) {
        if bytes.is_empty() || descriptors.len() > DESCRIPTORS_MAX {
            let error = io::Error::from_raw_os_error(libc::EINVAL);
            return (Err(error), bytes, descriptors);
        }
        let send = SendDescriptors::new(self.socket.on_loop(), bytes.into(), descriptors);
        let (result, buf, descriptors) = Op::new(send).await;
        (result, buf.into_vec().unwrap_or_default(), descriptors)
    }

    /// As [`UnixStream::read`], with the descriptors that were sent along, which are close-on-exec.
    /// A plain read closes them. [`Descriptors::is_cut`] reports lost ones.
    ///
    /// # Cancel safety
    /// Bytes received while the future is dropped are lost, and descriptors closed.
    pub async fn recv_descriptors(
        &self,
        buf: Vec<u8>,
    ) -> (io::Result<usize>, Vec<u8>, Descriptors) {
        let recv = RecvDescriptors::new(self.socket.on_loop(), buf.into());
        let (result, buf, descriptors) = Op::new(recv).await;
        (result, buf.into_vec(), descriptors)
    }

    /// This end's name.
    pub fn local_addr(&self) -> io::Result<SockAddr> {
        socket::local_addr(self.socket.as_raw_fd())
    }

    /// The other end's name.
    pub fn peer_addr(&self) -> io::Result<SockAddr> {
        socket::peer_addr(self.socket.as_raw_fd())
    }
}

/// A Unix socket for datagrams, which arrive in order and are not lost.
#[derive(Debug)]
pub struct UnixDatagram {
    socket: Socket,
}

impl UnixDatagram {
    /// A socket at `name`.
    pub fn bind<'a>(name: impl Into<UnixName<'a>>) -> io::Result<Self> {
        let socket = bound(libc::SOCK_DGRAM, name.into())?;
        Ok(Self { socket })
    }

    /// A socket without a name: no peer can send to it.
    pub fn unbound() -> io::Result<Self> {
        let socket = Socket::open(libc::AF_UNIX, libc::SOCK_DGRAM)?;
        Ok(Self { socket })
    }

    /// Two connected sockets.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socket::pair(libc::SOCK_DGRAM)?;
        Ok((one.into(), other.into()))
    }

    /// Sets the peer: `send` goes there, and only its datagrams are received.
    pub async fn connect<'a>(&self, name: impl Into<UnixName<'a>>) -> io::Result<()> {
        let address = SockAddr::unix(name.into())?;
        Op::new(Connect::new(self.socket.on_loop(), address)).await
    }

    /// Sends one datagram to the socket at `to`; waits while its queue is full.
    ///
    /// No event reports room: it retries every few milliseconds. `send` of a connected socket waits
    /// for an event.
    pub async fn send_to<'a>(
        &self,
        bytes: Vec<u8>,
        to: impl Into<UnixName<'a>>,
    ) -> (io::Result<usize>, Vec<u8>) {
        let to = match SockAddr::unix(to.into()) {
            Ok(to) => to,
            Err(error) => return (Err(error), bytes),
        };
        let mut bytes = bytes;
        let mut pause = limits::CONNECT_PAUSE_MIN;
        loop {
            let (result, back) = self.socket.send_datagram(bytes, Some(to.clone())).await;
            match result {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    bytes = back;
                    sleep(pause).await;
                    pause = (pause * 2).min(limits::CONNECT_PAUSE_MAX);
                }
                result => return (result, back),
            }
        }
    }

    /// Sends one datagram to the peer.
    pub async fn send(&self, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.send_datagram(bytes, None).await
    }

    /// Receives one datagram and its sender's name; bytes beyond the capacity of `buf` are cut.
    ///
    /// # Cancel safety
    /// A datagram that arrives while the future is dropped is lost.
    pub async fn recv_from(&self, buf: Vec<u8>) -> (io::Result<(usize, SockAddr)>, Vec<u8>) {
        let recv = RecvMsg::new(self.socket.on_loop(), RecvBuf::from(buf));
        let (source, buf) = Op::new(recv).await;
        let bytes = buf.into_vec();
        (source.map(|source| (bytes.len(), source)), bytes)
    }

    /// Receives one datagram.
    pub async fn recv(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.recv(buf).await
    }

    /// Receives datagrams by one multishot receive into the loop's buffers.
    pub fn datagrams(&self) -> Datagrams<'_> {
        // Control data could carry descriptors.
        Datagrams::new(&self.socket, Control::Unwanted)
    }

    /// This end's name.
    pub fn local_addr(&self) -> io::Result<SockAddr> {
        socket::local_addr(self.socket.as_raw_fd())
    }
}

fn bound(kind: i32, name: UnixName<'_>) -> io::Result<Socket> {
    let socket = Socket::open(libc::AF_UNIX, kind)?;
    socket::bind(socket.as_raw_fd(), &SockAddr::unix(name)?)?;
    Ok(socket)
}

from_socket!(UnixListener, UnixStream, UnixDatagram);
stream!(UnixStream);
descriptor!(UnixListener);
descriptor!(UnixStream);
descriptor!(UnixDatagram);
from_listener!(UnixListener, unix_net::UnixListener);
from_descriptor!(UnixStream, unix_net::UnixStream);
from_descriptor!(UnixDatagram, unix_net::UnixDatagram);
