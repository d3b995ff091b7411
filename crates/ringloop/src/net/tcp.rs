//! TCP: a listener and a stream.
//!
//! Buffers are owned by the operation while it runs and come back with the result, whatever it is.
//! Dropping a socket closes it; its operations borrow it, so they are over or given up by then.
//!
//! A socket belongs to the thread that used it first: the driver there knows its descriptor, and is
//! told before it is closed. `OwnedFd::from(stream)` takes it to another one.

use super::incoming::{self, Incoming};
use super::options::{self, Keepalive};
use super::receive::Receive;
use super::socket::Socket;
use super::split::{OnSocket, ReadHalf, WriteHalf};
use crate::buf::{Outgoing, SendBuf};
use crate::executor::{Lent, Op};
use crate::op::Connect;
use crate::sys::address::SockAddr;
use crate::sys::socket;
use crate::time;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

/// How a listener is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenOptions {
    /// Let several listeners, on other threads, share the address; the kernel spreads connections over
    /// them (`SO_REUSEPORT`). Off by default.
    pub reuse_port: bool,
    /// Bind the address while old connections of it linger (`SO_REUSEADDR`). On by default.
    pub reuse_address: bool,
    /// Connections that wait to be accepted; the system's largest by default.
    pub backlog: i32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            reuse_port: false,
            reuse_address: true,
            backlog: libc::SOMAXCONN,
        }
    }
}

/// Listens for TCP connections.
///
/// # Sharing
/// For listeners that nobody else accepts from: on the ring an accept, also a single one, waits exclusively. Of several
/// processes or runtimes at one listening socket, inherited or passed on, the first to wait gets the connections, also while
/// it does nothing with them. Give each a listener of its own by [`ListenOptions::reuse_port`], or wait with
/// [`Readiness`](super::Readiness), which all of them hear of, and then accept until `WouldBlock` with `std`.
#[derive(Debug)]
pub struct TcpListener {
    socket: Socket,
}

impl TcpListener {
    /// Listen on `addr` with `SO_REUSEADDR` and the system's largest backlog.
    ///
    /// Errors: as [`TcpListener::bind_with`]. `EADDRINUSE` also for some milliseconds after a process that listened there
    /// through a ring was killed: the kernel closes what a ring holds a moment after its process is gone.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        Self::bind_with(addr, ListenOptions::default())
    }

    /// Listen on `addr` as `options` say.
    ///
    /// Errors: `EADDRINUSE`, `EADDRNOTAVAIL`, `EACCES`, and those of socket(2).
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

    /// Take one connection.
    ///
    /// Errors: those of accept(2); a lack of descriptors or memory is told after [`crate::limits::ACCEPT_PAUSE`], so that who asks
    /// again does not spin.
    /// Cancel safety: a connection that was taken while the future was being dropped is closed.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        Ok(TcpStream {
            socket: incoming::accept(&self.socket).await?.into(),
        })
    }

    /// Take connections as they come, by one multishot accept: up to `limits::UNTAKEN_CONNECTIONS_MAX` are taken
    /// before they are asked for. For a listener that nobody else accepts from; see [`TcpListener`].
    pub fn incoming(&self) -> Incoming<'_, TcpStream> {
        Incoming::new(&self.socket)
    }
}

/// A TCP connection.
#[derive(Debug)]
pub struct TcpStream {
    pub(super) socket: Socket,
}

impl OnSocket for TcpStream {
    fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl TcpStream {
    /// Connect to `addr`.
    ///
    /// Errors: those of connect(2). Cancel safety: the attempt is given up and the socket closed.
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let socket = open(addr)?;
        Op::new(Connect::new(socket.on_loop(), addr.into())).await?;
        Ok(Self { socket })
    }

    /// Connect to `addr`, within `limit`.
    ///
    /// Errors: `TimedOut`, and those of connect(2).
    pub async fn connect_timeout(addr: SocketAddr, limit: Duration) -> io::Result<Self> {
        time::timeout(limit, Self::connect(addr)).await?
    }

    /// Connect to the first of `addrs` that answers, tried in order.
    ///
    /// Errors: the last one's; `InvalidInput` where there is none.
    pub async fn connect_any(addrs: &[SocketAddr]) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to");
        for addr in addrs {
            match Self::connect(*addr).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Receive up to the capacity of `buf`, from its start; 0 is the end of the stream.
    /// Cancel safety: bytes taken while the future was being dropped are lost with its buffer.
    pub async fn read(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.recv(buf).await
    }

    /// Receive as [`TcpStream::read`], and leave the bytes where they are.
    pub async fn peek(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.peek(buf).await
    }

    /// Receive bytes as they come, by one multishot receive, without a buffer of one's own.
    pub fn receive(&self) -> Receive<'_> {
        Receive::new(&self.socket)
    }

    /// Send some of `bytes`; returns how many.
    pub async fn write(&self, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.socket.send(bytes).await
    }

    /// Send all of `bytes`: a vector, static ones, or what [`TcpStream::receive`] yielded.
    pub fn write_all<B: Outgoing>(&self, bytes: B) -> impl Future<Output = (io::Result<()>, B)> {
        self.socket.send_all(bytes)
    }

    /// Send some of `bufs`, in order, in one call; returns how many bytes. At most 1,024 buffers are
    /// looked at.
    pub async fn write_vectored(&self, bufs: Vec<Vec<u8>>) -> (io::Result<usize>, Vec<Vec<u8>>) {
        self.socket.send_vectored(bufs).await
    }

    /// Send all of `bufs`, in order.
    pub async fn write_all_vectored(&self, bufs: Vec<Vec<u8>>) -> (io::Result<()>, Vec<Vec<u8>>) {
        self.socket.send_all_vectored(bufs).await
    }

    /// Send some of `bytes` without copying them; returns how many went out, and the buffer as a future that
    /// is ready once the network has let go of it.
    ///
    /// Pays for large sends over a network card: from about 32 KiB. Over loopback the kernel copies after
    /// all, which [`Transfer`](super::Transfer) tells, and costs more than a plain send. Where the
    /// kernel or the driver cannot, it is a plain send. Several may be in flight one after another; each is
    /// awaited before the next is made.
    /// Errors: as [`TcpStream::write`].
    /// Source: `io_uring_prep_send_zc(3)`, kernel 6.0.
    pub async fn write_zero_copy(&self, bytes: Vec<u8>) -> (io::Result<usize>, Lent) {
        self.socket.send_zero_copy(vec![bytes.into()]).await
    }

    /// Send some of `bufs` as [`TcpStream::write_zero_copy`].
    ///
    /// Source: `io_uring_prep_sendmsg_zc(3)`, kernel 6.1.
    pub async fn write_vectored_zero_copy(&self, bufs: Vec<Vec<u8>>) -> (io::Result<usize>, Lent) {
        let bufs = bufs.into_iter().map(SendBuf::from).collect();
        self.socket.send_zero_copy(bufs).await
    }

    /// Send all of `bytes` without copying them, and wait until the network has let go of them: over TCP,
    /// until the peer has acknowledged them. Less than `limits::ZERO_COPY_BYTES_MIN` is a plain send.
    pub async fn write_all_zero_copy(&self, bytes: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        self.socket.send_all_zero_copy(bytes).await
    }

    /// Shut down one or both directions.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        socket::shutdown(self.socket.as_raw_fd(), how)
    }

    /// A reader and a writer that borrow the stream, for two futures of one task.
    pub fn split(&self) -> (ReadHalf<&Self>, WriteHalf<&Self>) {
        (ReadHalf::new(self), WriteHalf::new(self))
    }

    /// A reader and a writer that own the stream together, for two tasks. Dropping the writer ends the
    /// stream for the peer.
    pub fn into_split(self) -> (ReadHalf<Rc<Self>>, WriteHalf<Rc<Self>>) {
        let stream = Rc::new(self);
        (ReadHalf::new(Rc::clone(&stream)), WriteHalf::new(stream))
    }

    /// This end's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(socket::local_addr(self.socket.as_raw_fd())?)
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(socket::peer_addr(self.socket.as_raw_fd())?)
    }

    /// Switch Nagle's algorithm off (`true`) or on.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        socket::set_nodelay(self.socket.as_raw_fd(), nodelay)
    }

    /// Whether Nagle's algorithm is off.
    pub fn nodelay(&self) -> io::Result<bool> {
        options::nodelay(self.socket.as_raw_fd())
    }

    /// Have the kernel probe an idle connection, and reset one whose peer is gone; `None` stops it.
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
        options::set_keepalive(self.socket.as_raw_fd(), keepalive)
    }

    /// Whether the kernel probes an idle connection.
    pub fn keepalive(&self) -> io::Result<bool> {
        options::keepalive(self.socket.as_raw_fd())
    }

    /// What becomes of unsent bytes at the close: `Some(0)` drops them and resets the connection. In whole
    /// seconds, rounded up.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        socket::set_linger(self.socket.as_raw_fd(), linger)
    }

    /// Hops that a packet may take (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        options::set_ttl(self.socket.as_raw_fd(), ttl)
    }

    /// Hops that a packet may take.
    pub fn ttl(&self) -> io::Result<u32> {
        options::ttl(self.socket.as_raw_fd())
    }

    /// Size of the kernel's buffer for what is to be sent, in bytes; it doubles what it is told.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        options::set_send_buffer(self.socket.as_raw_fd(), bytes)
    }

    /// Size of the kernel's buffer for what was received, in bytes; it doubles what it is told.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        options::set_receive_buffer(self.socket.as_raw_fd(), bytes)
    }
}

macro_rules! descriptor {
    ($type:ident) => {
        impl $type {
            /// Ask every operation in flight on this socket to stop; returns how many were asked. Each
            /// ends with `ECANCELED`, or with the result that won the race.
            ///
            /// Source: `IORING_ASYNC_CANCEL_FD`, kernel 5.19.
            pub fn cancel(&self) -> usize {
                self.socket.cancel()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.socket.lend_fd().as_raw_fd()
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.socket.lend_fd()
            }
        }

        impl From<$type> for OwnedFd {
            /// Takes the descriptor off its loop; its operations are over or given up.
            fn from(socket: $type) -> Self {
                socket.socket.into_fd()
            }
        }
    };
}
pub(super) use descriptor;

macro_rules! from_descriptor {
    ($type:ident, $std:ty) => {
        impl From<OwnedFd> for $type {
            /// Takes over a descriptor of this kind; another kind gives errors, no more.
            fn from(fd: OwnedFd) -> Self {
                Socket::from(fd).into()
            }
        }

        impl From<$std> for $type {
            /// Takes the descriptor over.
            fn from(socket: $std) -> Self {
                OwnedFd::from(socket).into()
            }
        }
    };
}
pub(super) use from_descriptor;

macro_rules! from_listener {
    ($type:ident, $std:ty) => {
        impl From<OwnedFd> for $type {
            /// Takes over a listener's descriptor; another kind gives errors, no more.
            ///
            /// It is made non-blocking, and so is every other handle of the same listener (`try_clone`, an inherited
            /// descriptor): their `accept` returns `WouldBlock` where it waited. Otherwise one of them could take a
            /// connection that this loop was told of, and the whole loop would wait for the next one.
            fn from(fd: OwnedFd) -> Self {
                // What is no listener says so when it is used.
                drop($crate::sys::socket::set_nonblocking(fd.as_raw_fd(), true));
                Socket::from(fd).into()
            }
        }

        impl From<$std> for $type {
            /// Takes the descriptor over, and makes it and every other handle of the listener non-blocking, as from an
            /// `OwnedFd`.
            fn from(socket: $std) -> Self {
                OwnedFd::from(socket).into()
            }
        }
    };
}
pub(super) use from_listener;

macro_rules! from_socket {
    ($($type:ident),*) => {$(
        impl From<Socket> for $type {
            fn from(socket: Socket) -> Self {
                Self { socket }
            }
        }
    )*};
}
pub(super) use from_socket;

from_socket!(TcpListener, TcpStream);

descriptor!(TcpListener);
descriptor!(TcpStream);
from_listener!(TcpListener, std::net::TcpListener);
from_descriptor!(TcpStream, std::net::TcpStream);

fn open(addr: SocketAddr) -> io::Result<Socket> {
    Socket::open(domain(addr), libc::SOCK_STREAM)
}

pub(super) fn domain(addr: SocketAddr) -> i32 {
    if addr.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    }
}

pub(super) fn inet(addr: SockAddr) -> io::Result<SocketAddr> {
    addr.to_std()
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}
