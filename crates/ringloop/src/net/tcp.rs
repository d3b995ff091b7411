//! TCP: a listener and a stream.
//!
//! Buffers are owned by the operation while it runs and come back with the result, whatever it is.
//! Dropping a socket closes it; its operations borrow it, so they are over or given up by then.
//!
//! A socket belongs to the thread that used it first: the driver there knows its descriptor, and is
//! told before it is closed. `OwnedFd::from(stream)` takes it to another one.

use crate::buf::{RecvBuf, SendBuf};
use crate::executor::{Home, Local, Op};
use crate::op::{Accept, Connect, Recv, Send};
use crate::sys::address::SockAddr;
use crate::sys::socket;
use std::cell::RefCell;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A socket that tells the driver before it is closed.
#[derive(Debug)]
struct Socket {
    fd: Option<OwnedFd>,
    /// Where it was used last.
    home: RefCell<Option<Home>>,
}

impl Socket {
    fn open(addr: SocketAddr) -> io::Result<Self> {
        let domain = if addr.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        Ok(socket::socket(domain, libc::SOCK_STREAM, 0)?.into())
    }

    /// The descriptor, to be used on the loop that runs.
    fn on_loop(&self) -> RawFd {
        let local = Local::current();
        let mut home = self.home.borrow_mut();
        match &*home {
            Some(home) if home.is(&local) => return self.as_raw_fd(),
            Some(other) => other.release(self.as_raw_fd()),
            None => {}
        }
        *home = Some(local.home());
        self.as_raw_fd()
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self {
            fd: Some(fd),
            home: RefCell::new(None),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let (Some(fd), Some(home)) = (self.fd.take(), self.home.get_mut()) {
            home.close(fd);
        }
    }
}

/// Listens for TCP connections.
#[derive(Debug)]
pub struct TcpListener {
    socket: Socket,
}

impl TcpListener {
    /// Listen on `addr` with `SO_REUSEADDR` and the system's largest backlog.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        let socket = Socket::open(addr)?;
        socket::set_reuse_address(socket.as_raw_fd(), true)?;
        socket::bind(socket.as_raw_fd(), &SockAddr::from(addr))?;
        socket::listen(socket.as_raw_fd(), libc::SOMAXCONN)?;
        Ok(Self { socket })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(socket::local_addr(self.socket.as_raw_fd())?)
    }

    /// Take one connection. Cancel safety: a connection that was taken while the future was being
    /// dropped is closed.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        let accept = Accept {
            fd: self.socket.on_loop(),
            multi: false,
        };
        Ok(TcpStream {
            socket: Op::new(accept).await?.into(),
        })
    }
}

/// A TCP connection.
#[derive(Debug)]
pub struct TcpStream {
    socket: Socket,
}

impl TcpStream {
    /// Connect to `addr`.
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let socket = Socket::open(addr)?;
        Op::new(Connect::new(socket.on_loop(), addr.into())).await?;
        Ok(Self { socket })
    }

    /// Receive up to the capacity of `buf`, from its start; 0 is the end of the stream.
    /// Cancel safety: bytes taken while the future was being dropped are lost with its buffer.
    pub async fn read(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let recv = Recv {
            fd: self.socket.on_loop(),
            buf: RecvBuf::from(buf),
        };
        let (result, buf) = Op::new(recv).await;
        (result, buf.into_vec())
    }

    /// Send some of `bytes`; returns how many.
    pub async fn write(&self, bytes: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let send = Send {
            fd: self.socket.on_loop(),
            buf: SendBuf::from(bytes),
        };
        let (result, buf) = Op::new(send).await;
        (result, buf.into_vec().unwrap_or_default())
    }

    /// Send all of `bytes`.
    pub async fn write_all(&self, bytes: Vec<u8>) -> (io::Result<()>, Vec<u8>) {
        let mut buf = SendBuf::from(bytes);
        while !buf.is_empty() {
            let (result, back) = Op::new(Send {
                fd: self.socket.on_loop(),
                buf,
            })
            .await;
            buf = back;
            match result {
                Ok(count) => buf.advance(count),
                Err(error) => return (Err(error), buf.into_vec().unwrap_or_default()),
            }
        }
        (Ok(()), buf.into_vec().unwrap_or_default())
    }

    /// Shut down one or both directions.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        socket::shutdown(self.socket.as_raw_fd(), how)
    }

    /// Switch Nagle's algorithm off (`true`) or on.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        socket::set_nodelay(self.socket.as_raw_fd(), nodelay)
    }

    /// This end's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(socket::local_addr(self.socket.as_raw_fd())?)
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(socket::peer_addr(self.socket.as_raw_fd())?)
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl From<TcpStream> for OwnedFd {
    /// Takes the descriptor off its loop; the stream's operations are over or given up.
    fn from(stream: TcpStream) -> Self {
        let mut socket = stream.socket;
        if let Some(home) = socket.home.get_mut().take() {
            home.release(socket.as_raw_fd());
        }
        socket
            .fd
            .take()
            .expect("a socket holds its descriptor until it is dropped")
    }
}

impl From<std::net::TcpStream> for TcpStream {
    /// Takes the descriptor over.
    fn from(stream: std::net::TcpStream) -> Self {
        Self {
            socket: OwnedFd::from(stream).into(),
        }
    }
}

fn inet(addr: SockAddr) -> io::Result<SocketAddr> {
    addr.to_std()
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}
