//! TCP: a listener and a stream.
//!
//! Owns: [`TcpListener`], [`TcpStream`]. Called by: coroutines.
//!
//! Byte path: `socket` reads and writes; connecting and accepting are the engine's operations.

use super::lookup::{self, ToSocketAddrs};
use super::macros;
use super::socket::{Direction, Socket, after_a_pause, pause_after, zero_timeout};
use crate::wait::block_on;
use ringloop::embed::Op;
use ringloop::embed::op::Accept;
use ringloop::embed::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use ringloop::time;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

/// Listens for TCP connections.
///
/// On the ring an accept waits exclusively: of several processes or runtimes that accept from one
/// listening socket, the first to wait gets the connections. `accept_async` waits for readiness,
/// which wakes all.
pub struct TcpListener {
    socket: Socket<std::net::TcpListener>,
}

macros::socket!(TcpListener, std::net::TcpListener);
macros::listener!(TcpListener, std::net::TcpListener, TcpStream, SocketAddr, Incoming);

impl TcpListener {
    /// Listens on the first address that is available, with `SO_REUSEADDR` and the system's largest
    /// backlog.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`, and those of socket(2).
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        lookup::first(addr, |addr| Self::listen(addr, false))
    }

    /// Listens like [`TcpListener::bind`], on an address shared with other listeners; the kernel
    /// spreads the connections over them (`SO_REUSEPORT`).
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn bind_reuse_port(addr: impl ToSocketAddrs) -> io::Result<Self> {
        lookup::first(addr, |addr| Self::listen(addr, true))
    }

    fn listen(addr: SocketAddr, reuse_port: bool) -> io::Result<Self> {
        let options =
            ringloop::net::ListenOptions { reuse_port, ..ringloop::net::ListenOptions::default() };
        let listener = ringloop::net::TcpListener::bind_with(addr, options)?;
        let socket = Socket::new(std::net::TcpListener::from(OwnedFd::from(listener)));
        Ok(Self { socket })
    }

    /// Parks until a connection comes, and accepts it. A connection that was reset meanwhile, and
    /// has no peer any more, is dropped.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`, after a short pause; `ECONNABORTED`. Accept again.
    ///
    /// # Cancel safety
    /// A connection that was accepted meanwhile is closed.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let accepted = self.next().and_then(|stream| {
                let peer = stream.peer_addr()?;
                Ok((stream, peer))
            });
            match accepted {
                Err(error) if is_gone(&error) => {}
                done => return done,
            }
        }
    }
}

/// The connection has ended before it was accepted: getpeername(2) returns the first of the errors,
/// Windows's `accept` either.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::ConnectionReset)
}

/// A TCP connection; `&TcpStream` reads and writes too.
pub struct TcpStream {
    socket: Socket<std::net::TcpStream>,
}

macros::socket!(TcpStream, std::net::TcpStream);
macros::timeouts!(TcpStream);
macros::stream!(TcpStream, SocketAddr);
macros::methods!(TcpStream {
    /// Receives without removing the bytes from the socket.
    read peek(into: &mut [u8]) -> usize;
    /// Disables Nagle's algorithm (`true`) or enables it.
    direct set_nodelay(nodelay: bool) -> ();
    /// Whether Nagle's algorithm is disabled.
    direct nodelay() -> bool;
    /// Sets the hops that a packet may take.
    direct set_ttl(ttl: u32) -> ();
    /// Hops that a packet may take.
    direct ttl() -> u32;
});

impl TcpStream {
    /// Connects to the first address that answers.
    ///
    /// # Errors
    /// Those of connect(2), for the last address.
    ///
    /// # Cancel safety
    /// The attempt is cancelled and the socket closed.
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        lookup::first(addr, |addr| block_on(Self::connect_async(addr)))
    }

    /// Connects to `addr` within `limit`.
    ///
    /// # Errors
    /// `TimedOut`, `InvalidInput` for zero, and those of connect(2).
    pub fn connect_timeout(addr: &SocketAddr, limit: Duration) -> io::Result<Self> {
        if limit.is_zero() {
            return Err(zero_timeout());
        }
        block_on(time::timeout(limit, Self::connect_async(*addr)))?
    }

    /// Connects to `addr`: for `select!`.
    ///
    /// # Errors
    /// Those of connect(2).
    ///
    /// # Cancel safety
    /// The attempt is cancelled and the socket closed.
    pub async fn connect_async(addr: SocketAddr) -> io::Result<Self> {
        let stream = ringloop::net::TcpStream::connect(addr).await?;
        Ok(Self::from_fd(stream.into()))
    }
}
