//! Unix sockets: a listener, streams and datagrams, by path; pairs.
//!
//! Owns: [`UnixListener`], [`UnixStream`], [`UnixDatagram`]. Called by: coroutines.
//!
//! Byte path: `socket` reads and writes streams; datagrams go by a system call and readiness. A
//! dropped listener leaves its file behind, as std's does.

use super::macros;
use super::socket::{Direction, Socket, after_a_pause, pause_after};
use crate::sys::unix_net::{self as std_net, SocketAddr};
use crate::wait::block_on;
use ringloop::embed::Op;
use ringloop::embed::op::Accept;
use ringloop::embed::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::net::Shutdown;
use std::path::Path;
use std::time::Duration;

/// Listens for Unix connections.
///
/// On the ring an accept waits exclusively: of several processes or runtimes that accept from one
/// listening socket, the first to wait gets the connections. `accept_async` waits for readiness,
/// which wakes all.
pub struct UnixListener {
    socket: Socket<std_net::UnixListener>,
}

macros::socket!(UnixListener, std_net::UnixListener);
macros::listener!(UnixListener, std_net::UnixListener, UnixStream, SocketAddr, UnixIncoming);

impl UnixListener {
    /// Listens at `path`.
    ///
    /// # Errors
    /// `EADDRINUSE`, also for a file that an earlier listener has left.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        std_net::UnixListener::bind(path)?.try_into()
    }

    /// Parks until a connection comes, and accepts it.
    ///
    /// # Errors
    /// Those of accept(2).
    ///
    /// # Cancel safety
    /// A connection that was accepted meanwhile is closed.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let stream = self.next()?;
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }
}

/// A Unix connection; `&UnixStream` reads and writes too.
pub struct UnixStream {
    socket: Socket<std_net::UnixStream>,
}

macros::socket!(UnixStream, std_net::UnixStream);
macros::timeouts!(UnixStream);
macros::stream!(UnixStream, SocketAddr);

impl UnixStream {
    /// Connects to the listener at `path`.
    ///
    /// No event reports room in a full backlog: it retries every few milliseconds.
    ///
    /// # Errors
    /// `ENOENT`, and those of connect(2).
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let stream = block_on(ringloop::net::UnixStream::connect(path.as_ref()))?;
        Ok(Self::from_fd(stream.into()))
    }

    /// Makes two connected streams.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std_net::UnixStream::pair()?;
        Ok((one.try_into()?, other.try_into()?))
    }
}

/// A Unix socket for datagrams.
pub struct UnixDatagram {
    socket: Socket<std_net::UnixDatagram>,
}

macros::socket!(UnixDatagram, std_net::UnixDatagram);
macros::timeouts!(UnixDatagram);
macros::methods!(UnixDatagram {
    /// Receives one datagram and its sender; what exceeds `into` is cut.
    read recv_from(into: &mut [u8]) -> (usize, SocketAddr);
    /// Receives one datagram.
    read recv(into: &mut [u8]) -> usize;
    /// Sends one datagram to the peer.
    write send(bytes: &[u8]) -> usize;
    /// Shuts down one or both directions.
    direct shutdown(how: Shutdown) -> ();
    /// This end's address.
    direct local_addr() -> SocketAddr;
    /// The peer's address.
    direct peer_addr() -> SocketAddr;
});

impl UnixDatagram {
    /// Binds a socket to `path`.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        std_net::UnixDatagram::bind(path)?.try_into()
    }

    /// Makes a socket without a name.
    pub fn unbound() -> io::Result<Self> {
        std_net::UnixDatagram::unbound()?.try_into()
    }

    /// Makes two connected sockets.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std_net::UnixDatagram::pair()?;
        Ok((one.try_into()?, other.try_into()?))
    }

    /// Sets the peer.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        (*self.socket).connect(path)
    }

    /// Sends one datagram to `path`. While the receiver's queue is full it retries every few
    /// milliseconds.
    pub fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.socket.when_peer_has_room(|socket| socket.send_to(bytes, path))
    }
}
