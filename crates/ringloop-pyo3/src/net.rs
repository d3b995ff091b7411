//! Sockets on the event loop's ring, or its epoll set.
//!
//! An operation owns its buffer: the kernel may use it after the future was dropped.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use ringloop_abi::{READABLE, WRITABLE};

use crate::raw::{Operation, Tcp, no_loop};

/// A TCP connection; of the thread whose loop has connected it. Dropping it closes it.
pub struct TcpStream(Tcp);

impl TcpStream {
    /// Connects to `host:port`. A name is looked up on the loop's pool of threads, a numeric address
    /// needs none.
    ///
    /// # Errors
    /// Those of connect(2), for the last address, and of the look-up.
    ///
    /// # Cancel safety
    /// Cancel safe: the attempt is cancelled and its socket closed.
    pub async fn connect(address: impl AsRef<str>) -> io::Result<Self> {
        Tcp::connect(address.as_ref()).await.map(Self)
    }

    /// Takes over a connection, such as one that a listener of std's has accepted.
    ///
    /// # Errors
    /// If ringloop is not loaded ([`initialise`](crate::initialise)).
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        Tcp::from_std(stream).map(Self)
    }

    /// Receives up to the capacity of `buf`, from its start; 0 is the end of the stream.
    ///
    /// # Errors
    /// Those of recv(2).
    ///
    /// # Cancel safety
    /// Bytes received while the future is dropped are lost with its buffer.
    pub async fn read(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        self.0.read(buf).await
    }

    /// Sends all of `bytes`, such as a vector, static bytes, `Rc<[u8]>` or `PyBackedBytes`. They are
    /// dropped once the kernel has done with them, at a moment when the loop cannot be called.
    ///
    /// # Errors
    /// Those of send(2).
    ///
    /// # Cancel safety
    /// Not cancel safe: some of the bytes may have been sent.
    pub async fn write_all(&self, bytes: impl AsRef<[u8]> + 'static) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// The connection as std's, for its options, addresses and `shutdown`.
    pub fn as_std(&self) -> impl Deref<Target = std::net::TcpStream> {
        self.0.as_std()
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpStream").field(&self.as_raw_fd()).finish()
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Directions in which a descriptor is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// A read, or an accept, would not block.
    pub readable: bool,
    /// A write would not block, or a connect has ended.
    pub writable: bool,
}

/// A descriptor of another kind, which its owner reads and writes itself: a UDP socket, a listener, a pipe,
/// the socket of a C library.
pub struct AsyncFd<T: AsFd> {
    // Dropped before what it watches.
    changes: Option<Operation>,
    directions: u32,
    inner: T,
}

impl<T: AsFd> AsyncFd<T> {
    /// Watches `inner` for the directions that are true, from the first [`AsyncFd::changed`] on. It should
    /// be non-blocking, and no other operation of the loop may use it meanwhile.
    pub fn new(inner: T, directions: Ready) -> Self {
        let bit = |on, bit| if on { bit } else { 0 };
        let directions = bit(directions.readable, READABLE) | bit(directions.writable, WRITABLE);
        Self { changes: None, directions, inner }
    }

    /// Waits until it is ready, or changed since the last call: read or write until `WouldBlock` before
    /// the next call, as the rest may not be reported again.
    ///
    /// # Errors
    /// `EPERM` for files that cannot be polled, such as a regular file (epoll).
    ///
    /// # Cancel safety
    /// Cancel safe: the next call reports the change.
    pub async fn changed(&mut self) -> io::Result<Ready> {
        if self.changes.is_none() {
            self.changes = Operation::readiness(&self.inner, self.directions);
        }
        let changes = self.changes.as_mut().ok_or_else(no_loop)?;
        let bits = poll_fn(|cx| changes.poll_count(cx)).await? as u32;
        Ok(Ready { readable: bits & READABLE != 0, writable: bits & WRITABLE != 0 })
    }

    /// What is watched.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncFd").field(&self.inner).finish()
    }
}
