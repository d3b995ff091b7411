//! Unix sockets: a listener, streams and datagrams, by path; pairs.
//!
//! Byte path: `socket` reads and writes streams; datagrams go by the call and readiness. A listener that is dropped
//! leaves its file behind, as std's does.

use super::macros;
use super::socket::{Direction, Socket, after_a_pause, pause_after};
use crate::{block_on, wait};
use ringloop::executor::Op;
use ringloop::limits::{CONNECT_PAUSE_MAX, CONNECT_PAUSE_MIN};
use ringloop::net::{SockAddr, UnixName};
use ringloop::op::{Accept, Connect};
use ringloop::sys::interest::Interest;
use ringloop::sys::socket;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{self as std_net, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// Listens for Unix connections.
///
/// For listeners that nobody else accepts from: on the ring an accept waits exclusively, so of several processes or runtimes
/// at one listening socket the first to wait gets the connections. `accept_async` waits by readiness, which all hear of.
pub struct UnixListener {
    socket: Socket<std_net::UnixListener>,
}

macros::socket!(UnixListener, std_net::UnixListener);

impl UnixListener {
    /// Listen at `path`.
    ///
    /// Errors: `EADDRINUSE` also for a file that an earlier listener left behind.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        std_net::UnixListener::bind(path)?.try_into()
    }

    /// Park until a connection comes, and take it.
    ///
    /// Cancellation: a connection that was taken meanwhile is closed.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let stream = self.next()?;
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }

    fn next(&self) -> io::Result<UnixStream> {
        if self.socket.may_give_up(Direction::Read) {
            let accept = std_net::UnixListener::accept;
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
        Ok(UnixStream::of(accepted?))
    }

    /// Take a connection, as a future: for `select!`. Cancel safety: safe.
    pub async fn accept_async(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let accept = std_net::UnixListener::accept;
        let accepted = self.socket.when_ready_async(Direction::Read, accept).await;
        let (stream, peer) = after_a_pause(accepted).await?;
        Ok((stream.try_into()?, peer))
    }

    /// The connections as they come, without end.
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// The name it listens at.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).local_addr()
    }
}

/// The connections of a listener, without end; an error is an item, and the next one is another try.
#[derive(Debug)]
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.next())
    }
}

impl FusedIterator for UnixIncoming<'_> {}

/// A Unix connection; `&UnixStream` reads and writes too.
pub struct UnixStream {
    socket: Socket<std_net::UnixStream>,
}

macros::socket!(UnixStream, std_net::UnixStream);
macros::timeouts!(UnixStream);
macros::stream!(UnixStream);

impl UnixStream {
    /// A connection that does not block.
    fn of(fd: OwnedFd) -> Self {
        Self {
            socket: Socket::new(fd.into()),
        }
    }

    /// Connect to the listener at `path`.
    ///
    /// While the listener's backlog is full it tries again every few milliseconds; no event tells of room.
    ///
    /// Errors: `ENOENT`, and those of connect(2).
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let address = SockAddr::unix(UnixName::Path(path.as_ref()))?;
        let stream = Self::of(socket::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)?);
        let mut pause = CONNECT_PAUSE_MIN;
        loop {
            let connect = Connect::new(stream.socket.on_loop(), address.clone());
            match block_on(Op::new(connect)) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    wait::sleep(pause);
                    pause = (pause * 2).min(CONNECT_PAUSE_MAX);
                }
                connected => return connected.map(|()| stream),
            }
        }
    }

    /// Two connected streams.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socket::pair(libc::SOCK_STREAM)?;
        Ok((Self::of(one), Self::of(other)))
    }

    /// This end's name.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).local_addr()
    }

    /// The other end's name.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).peer_addr()
    }
}

/// A Unix socket for datagrams.
pub struct UnixDatagram {
    socket: Socket<std_net::UnixDatagram>,
}

macros::socket!(UnixDatagram, std_net::UnixDatagram);
macros::timeouts!(UnixDatagram);

impl UnixDatagram {
    /// A socket at `path`.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        std_net::UnixDatagram::bind(path)?.try_into()
    }

    /// A socket without a name.
    pub fn unbound() -> io::Result<Self> {
        std_net::UnixDatagram::unbound()?.try_into()
    }

    /// Two connected sockets.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std_net::UnixDatagram::pair()?;
        Ok((one.try_into()?, other.try_into()?))
    }

    /// Set the peer.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        (*self.socket).connect(path)
    }

    /// Send one datagram to `path`; waits while that one's queue is full, with a try every few milliseconds.
    pub fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.socket
            .when_peer_has_room(|socket| socket.send_to(bytes, path))
    }

    /// Receive one datagram, with where it came from; what is longer than `into` is cut.
    pub fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.socket
            .when_ready(Direction::Read, |socket| socket.recv_from(into))
    }

    /// Send one datagram to the peer.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket
            .when_ready(Direction::Write, |socket| socket.send(bytes))
    }

    /// Receive one datagram.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.socket
            .when_ready(Direction::Read, |socket| socket.recv(into))
    }

    /// Shut down one or both directions.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        (*self.socket).shutdown(how)
    }

    /// This end's name.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).local_addr()
    }

    /// The other end's name.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        (*self.socket).peer_addr()
    }
}
