//! TCP: a listener and a stream.
//!
//! An operation owns its buffer and returns it with the result. Dropping a socket closes it; its
//! operations borrow it, so they have ended or were dropped by then.
//!
//! A socket is registered with the driver of the thread that uses it, and released before it is
//! closed. `OwnedFd::from(stream)` moves it to another thread.

use super::addresses::ToSocketAddrs;
use super::incoming::{self, Incoming};
use super::macros::{descriptor, from_descriptor, from_listener, from_socket, internet, stream};
use super::options::{self, Keepalive};
use super::receive::Receive;
use super::socket::Socket;
use super::split::{OnSocket, ReadHalf, WriteHalf};
use crate::buf::{Outgoing, RecvBuf, SendBuf};
use crate::executor::{Op, ZeroCopyBufs};
use crate::op::{Connect, Recv};
use crate::sys::address::SockAddr;
use crate::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use crate::sys::libc;
use crate::sys::socket;
use crate::time;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// Options of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenOptions {
    /// Several listeners, on other threads, share the address; the kernel spreads connections over
    /// them (`SO_REUSEPORT`). Off by default.
    pub reuse_port: bool,
    /// Binds the address while old connections of it linger (`SO_REUSEADDR`). On by default.
    pub reuse_address: bool,
    /// Length of the queue of unaccepted connections; the system's largest by default.
    pub backlog: i32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { reuse_port: false, reuse_address: true, backlog: libc::SOMAXCONN }
    }
}

/// Listens for TCP connections.
///
/// # Sharing
/// On the ring every accept, also a single one, is an exclusive wait. If several processes or
/// runtimes accept from one listening socket (inherited or passed), the first to wait gets the
/// connections, even while it does not handle them. Give each its own listener by
/// [`ListenOptions::reuse_port`], or wait with [`Readiness`](super::Readiness), which wakes all, and
/// accept until `WouldBlock` with `std`.
#[derive(Debug)]
pub struct TcpListener {
    socket: Socket,
}

impl TcpListener {
    /// Listens on the first of `addrs` that can be bound, with `SO_REUSEADDR` and the system's largest
    /// backlog.
    ///
    /// Waits for the look-up of a name only; [`TcpListener::bind_addr`] needs no runtime.
    ///
    /// # Errors
    /// Those of the last address, as [`TcpListener::bind_with`], and of [`lookup_host`](super::lookup_host);
    /// `InvalidInput` without addresses.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is bound.
    pub async fn bind(addrs: impl ToSocketAddrs) -> io::Result<Self> {
        addrs.targets().first(async |addr| Self::bind_addr(addr)).await
    }

    /// Listens on `addr`, as [`TcpListener::bind`].
    ///
    /// # Errors
    /// As [`TcpListener::bind_with`]. `EADDRINUSE` also for some milliseconds after a process that
    /// listened there through a ring was killed: the kernel closes a ring's files after its exit.
    pub fn bind_addr(addr: SocketAddr) -> io::Result<Self> {
        Self::bind_with(addr, ListenOptions::default())
    }

    /// Listens on `addr` with `options`.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`, and those of socket(2).
    pub fn bind_with(addr: SocketAddr, options: ListenOptions) -> io::Result<Self> {
        let socket = open(addr)?;
        let fd = socket.as_raw_fd();
        socket::set_reuse_address(fd, options.reuse_address)?;
        if options.reuse_port {
            socket::set_reuse_port(fd, true)?;
        }
        socket::bind(fd, &SockAddr::from(addr))?;
        socket::listen(fd, options.backlog)?;
        Ok(Self { socket })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(socket::local_addr(self.socket.as_raw_fd())?)
    }

    /// Accepts one connection.
    ///
    /// # Errors
    /// Those of accept(2); exhaustion (`EMFILE` …) is returned after a pause, so that a retry does
    /// not spin.
    ///
    /// # Cancel safety
    /// A connection accepted while the future is dropped is closed.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        Ok(TcpStream { socket: incoming::accept(&self.socket).await?.into() })
    }

    /// Accepts by one multishot accept: up to `limits::UNTAKEN_CONNECTIONS_MAX` connections are
    /// accepted ahead. Only for a listener that is not shared; see [`TcpListener`].
    pub fn incoming(&self) -> Incoming<'_, TcpStream> {
        Incoming::new(&self.socket)
    }
}

/// A TCP connection.
#[derive(Debug)]
pub struct TcpStream {
    pub(super) socket: Socket,
}

impl TcpStream {
    /// Connects to the first of `addrs` that answers, tried in order.
    ///
    /// A `SocketAddr` costs no more than its attempt.
    ///
    /// # Errors
    /// Those of connect(2) for the last address, and of [`lookup_host`](super::lookup_host);
    /// `InvalidInput` without addresses.
    ///
    /// # Cancel safety
    /// Cancel safe: the attempt is cancelled and its socket closed.
    pub async fn connect(addrs: impl ToSocketAddrs) -> io::Result<Self> {
        addrs.targets().first(Self::connect_addr).await
    }

    async fn connect_addr(addr: SocketAddr) -> io::Result<Self> {
        let socket = open(addr)?;
        Op::new(Connect::new(socket.on_loop(), addr.into())).await?;
        Ok(Self { socket })
    }

    /// Connects as [`TcpStream::connect`], look-up included, within `limit`.
    ///
    /// # Errors
    /// `TimedOut`, and those of [`TcpStream::connect`].
    ///
    /// # Cancel safety
    /// As [`TcpStream::connect`].
    pub async fn connect_timeout(addrs: impl ToSocketAddrs, limit: Duration) -> io::Result<Self> {
        time::timeout(limit, Self::connect(addrs)).await?
    }

    /// Sends some of `bytes` without copying them; returns the count, and a future that returns the
    /// buffer once the network has released it.
    ///
    /// Worth it for large sends over a network card, from about 32 KiB. Over loopback the kernel
    /// copies anyway, as [`Transfer`](super::Transfer) reports, and it costs more than a plain
    /// send. Without support of kernel or driver it is a plain send. Await each send before the
    /// next; several buffers may be in flight. See `io_uring_prep_send_zc(3)`, kernel 6.0.
    ///
    /// # Errors
    /// As [`TcpStream::write`].
    pub async fn write_zero_copy(&self, bytes: Vec<u8>) -> (io::Result<usize>, ZeroCopyBufs) {
        self.socket.send_zero_copy(vec![bytes.into()]).await
    }

    /// Sends some of `bufs` as [`TcpStream::write_zero_copy`]. See `io_uring_prep_sendmsg_zc(3)`,
    /// kernel 6.1.
    pub async fn write_vectored_zero_copy(
        &self,
        bufs: Vec<Vec<u8>>,
    ) -> (io::Result<usize>, ZeroCopyBufs) {
        let bufs = bufs.into_iter().map(SendBuf::from).collect();
        self.socket.send_zero_copy(bufs).await
    }

    /// Sends all of `bytes` without copying them, and waits until the network has released them:
    /// over TCP, until the peer has acknowledged them. Fewer than `limits::ZERO_COPY_BYTES_MIN` are
    /// sent plainly.
    pub async fn write_all_zero_copy(&self, bytes: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        self.socket.send_all_zero_copy(bytes).await
    }

    /// Switches Nagle's algorithm off (`true`) or on.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        socket::set_nodelay(self.socket.as_raw_fd(), nodelay)
    }

    /// Whether Nagle's algorithm is off.
    pub fn nodelay(&self) -> io::Result<bool> {
        options::nodelay(self.socket.as_raw_fd())
    }

    /// Sets the kernel's probes of an idle connection, which reset it if the peer is gone; `None`
    /// disables them.
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
        options::set_keepalive(self.socket.as_raw_fd(), keepalive)
    }

    /// Whether the kernel probes an idle connection.
    pub fn keepalive(&self) -> io::Result<bool> {
        options::keepalive(self.socket.as_raw_fd())
    }

    /// Sets the time for unsent bytes at the close, in whole seconds, rounded up. `Some(0)` drops
    /// them and resets the connection.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        socket::set_linger(self.socket.as_raw_fd(), linger)
    }

    /// Hops that a packet may take.
    pub fn ttl(&self) -> io::Result<u32> {
        options::ttl(self.socket.as_raw_fd())
    }
}

from_socket!(TcpListener, TcpStream);
stream!(TcpStream);
internet!(TcpStream);

descriptor!(TcpListener);
descriptor!(TcpStream);
from_listener!(TcpListener, std::net::TcpListener);
from_descriptor!(TcpStream, std::net::TcpStream);

fn open(addr: SocketAddr) -> io::Result<Socket> {
    Socket::open(domain(addr), libc::SOCK_STREAM)
}

pub(super) fn domain(addr: SocketAddr) -> i32 {
    if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

pub(super) fn inet(addr: SockAddr) -> io::Result<SocketAddr> {
    addr.to_std().ok_or_else(|| io::ErrorKind::Unsupported.into())
}
