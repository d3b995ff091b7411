//! TCP: a listener and a stream.
//!
//! Byte path: `socket` reads and writes; connecting and accepting are the engine's operations.

use super::lookup::{self, ToSocketAddrs};
use super::macros;
use super::socket::{Direction, Socket, after_a_pause, pause_after};
use crate::block_on;
use ringloop::executor::Op;
use ringloop::net::SockAddr;
use ringloop::op::{Accept, Connect};
use ringloop::sys::interest::Interest;
use ringloop::sys::socket;
use ringloop::time;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Listens for TCP connections.
///
/// For listeners that nobody else accepts from: on the ring an accept waits exclusively, so of several processes or runtimes
/// at one listening socket the first to wait gets the connections. `accept_async` waits by readiness, which all hear of.
pub struct TcpListener {
    socket: Socket<std::net::TcpListener>,
}

macros::socket!(TcpListener, std::net::TcpListener);

impl TcpListener {
    /// Listen on the first of the addresses that can be had, with `SO_REUSEADDR` and the system's largest backlog.
    ///
    /// Errors: `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`, and those of socket(2).
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        lookup::first(addr, |addr| Self::listen(addr, false))
    }

    /// Listen as [`TcpListener::bind`], on an address that other listeners, of other workers, share; the kernel
    /// spreads the connections over them (`SO_REUSEPORT`).
    pub fn bind_reuse_port(addr: impl ToSocketAddrs) -> io::Result<Self> {
        lookup::first(addr, |addr| Self::listen(addr, true))
    }

    fn listen(addr: SocketAddr, reuse_port: bool) -> io::Result<Self> {
        let options = ringloop::net::ListenOptions {
            reuse_port,
            ..ringloop::net::ListenOptions::default()
        };
        let listener = ringloop::net::TcpListener::bind_with(addr, options)?;
        let socket = std::net::TcpListener::from(OwnedFd::from(listener));
        Ok(Self {
            socket: Socket::new(socket),
        })
    }

    /// Park until a connection comes, and take it. One that was reset before that, and has no peer any more, is dropped.
    ///
    /// Errors: `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`: wait a little and ask again. `ECONNABORTED`: ask again.
    /// Cancellation: a connection that was taken meanwhile is closed.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let stream = self.next()?;
            match stream.peer_addr() {
                Err(error) if error.kind() == ErrorKind::NotConnected => {}
                peer => return Ok((stream, peer?)),
            }
        }
    }

    /// The next connection, whatever became of its peer.
    fn next(&self) -> io::Result<TcpStream> {
        if self.socket.may_give_up(Direction::Read) {
            let accept = std::net::TcpListener::accept;
            let accepted = self.socket.when_ready(Direction::Read, accept);
            pause_after(&accepted);
            return accepted?.0.try_into();
        }
        let accept = Accept {
            fd: self.socket.on_loop(),
            multi: false,
        };
        let accepted = block_on(Op::new(accept));
        pause_after(&accepted);
        Ok(TcpStream::of(accepted?))
    }

    /// Take a connection, as a future: for `select!`.
    ///
    /// Cancel safety: safe; nothing is taken before it is ready.
    pub async fn accept_async(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accept = self
            .socket
            .when_ready_async(Direction::Read, std::net::TcpListener::accept);
        let (stream, peer) = after_a_pause(accept.await).await?;
        Ok((stream.try_into()?, peer))
    }

    /// The connections as they come, without end; also those that were reset meanwhile, whose reads tell.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).local_addr()
    }
}

/// The connections of a listener, without end; an error is an item, and the next one is another try.
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.next())
    }
}

impl FusedIterator for Incoming<'_> {}

/// A TCP connection; `&TcpStream` reads and writes too.
pub struct TcpStream {
    socket: Socket<std::net::TcpStream>,
}

macros::socket!(TcpStream, std::net::TcpStream);
macros::timeouts!(TcpStream);
macros::stream!(TcpStream);

impl TcpStream {
    /// A connection that does not block.
    fn of(fd: OwnedFd) -> Self {
        Self {
            socket: Socket::new(fd.into()),
        }
    }

    /// Connect to the first of the addresses that answers.
    ///
    /// Errors: the last one's; those of connect(2).
    /// Cancellation: the attempt is given up and the socket closed.
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        lookup::first(addr, |addr| block_on(Self::connect_async(addr)))
    }

    /// Connect to `addr`, within `limit`.
    ///
    /// Errors: `TimedOut`, `InvalidInput` for zero, and those of connect(2).
    pub fn connect_timeout(addr: &SocketAddr, limit: Duration) -> io::Result<Self> {
        if limit.is_zero() {
            let error = "cannot set a 0 duration timeout";
            return Err(io::Error::new(ErrorKind::InvalidInput, error));
        }
        block_on(time::timeout(limit, Self::connect_async(*addr)))?
    }

    /// Connect to `addr`, as a future: for `select!`.
    ///
    /// Cancel safety: the attempt is given up and the socket closed.
    pub async fn connect_async(addr: SocketAddr) -> io::Result<Self> {
        let domain = match addr {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        let stream = Self::of(socket::socket(domain, libc::SOCK_STREAM, 0)?);
        let connect = Connect::new(stream.socket.on_loop(), SockAddr::from(addr));
        Op::new(connect).await?;
        Ok(stream)
    }

    /// Receive, and leave the bytes where they are.
    pub fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.socket
            .when_ready(Direction::Read, |socket| socket.peek(into))
    }

    /// This end's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).local_addr()
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).peer_addr()
    }

    /// Switch Nagle's algorithm off (`true`) or on.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        (*self.socket).set_nodelay(nodelay)
    }

    /// Whether Nagle's algorithm is off.
    pub fn nodelay(&self) -> io::Result<bool> {
        (*self.socket).nodelay()
    }

    /// Hops that a packet may take.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        (*self.socket).set_ttl(ttl)
    }

    /// Hops that a packet may take.
    pub fn ttl(&self) -> io::Result<u32> {
        (*self.socket).ttl()
    }
}
