//! Methods and conversions that several socket types share, each stated once.
//!
//! Called by: `tcp`, `udp`, `unix`, which import what the macros name.

/// Methods of streams.
macro_rules! stream {
    ($type:ident) => {
        impl $type {
            /// Receives up to the capacity of `buf`, from its start; 0 is the end of the stream. Without
            /// capacity it returns 0 at once, as [`std::io::Read::read`] does.
            ///
            /// # Cancel safety
            /// Bytes received while the future is dropped are lost with its buffer.
            pub async fn read(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
                if buf.capacity() == 0 {
                    return (Ok(0), buf);
                }
                self.socket.recv(buf).await
            }

            /// As [`Self::read`], into foreign memory or a part of a vector.
            pub async fn read_buf(&self, mut buf: RecvBuf) -> (io::Result<usize>, RecvBuf) {
                if buf.as_mut_ptr().1 == 0 {
                    return (Ok(0), buf);
                }
                self.socket.recv_buf(buf).await
            }

            /// As [`Self::read`], without removing the bytes from the socket.
            pub async fn peek(&self, buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
                if buf.capacity() == 0 {
                    return (Ok(0), buf);
                }
                self.socket.peek(buf).await
            }

            /// Receives by one multishot receive into the loop's buffers.
            pub fn receive(&self) -> Receive<'_> {
                Receive::new(&self.socket)
            }

            /// A receive into the room of `buf`.
            pub(crate) fn recv_op(&self, buf: RecvBuf) -> Op<Recv> {
                self.socket.recv_op(buf)
            }

            /// Sends some of `bytes`; returns the count.
            pub async fn write<B: Outgoing>(&self, bytes: B) -> (io::Result<usize>, B) {
                self.socket.send(bytes).await
            }

            /// Sends all of `bytes`: any [`Outgoing`], such as a vector, static bytes, text, or a buffer from
            /// [`Self::receive`].
            ///
            /// # Errors
            /// Those of send(2); `ECANCELED` after [`Self::cancel`].
            ///
            /// # Cancel safety
            /// Not cancel safe: some of the bytes may have been sent.
            pub fn write_all<B: Outgoing>(
                &self,
                bytes: B,
            ) -> impl Future<Output = (io::Result<()>, B)> {
                self.socket.send_all(bytes)
            }

            /// Sends some of `bufs`, in order, in one call; returns the byte count. Uses at most 1,024
            /// buffers.
            pub async fn write_vectored(
                &self,
                bufs: Vec<Vec<u8>>,
            ) -> (io::Result<usize>, Vec<Vec<u8>>) {
                self.socket.send_vectored(bufs).await
            }

            /// Sends all of `bufs`, in order.
            pub async fn write_all_vectored(
                &self,
                bufs: Vec<Vec<u8>>,
            ) -> (io::Result<()>, Vec<Vec<u8>>) {
                self.socket.send_all_vectored(bufs).await
            }

            /// Shuts down one or both directions.
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
        }

        impl OnSocket for $type {
            fn socket(&self) -> &Socket {
                &self.socket
            }
        }
    };
}
pub(super) use stream;

/// Addresses and options of Internet sockets.
macro_rules! internet {
    ($type:ident) => {
        impl $type {
            /// This end's address.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                inet(socket::local_addr(self.socket.as_raw_fd())?)
            }

            /// The other end's address.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                inet(socket::peer_addr(self.socket.as_raw_fd())?)
            }

            /// Hops that a packet may take (`IP_TTL`, `IPV6_UNICAST_HOPS`).
            pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
                options::set_ttl(self.socket.as_raw_fd(), ttl)
            }

            /// Size of the kernel's send buffer in bytes, which the kernel doubles.
            pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
                options::set_size(self.socket.as_raw_fd(), libc::SO_SNDBUF, bytes)
            }

            /// Size of the kernel's receive buffer in bytes, which the kernel doubles.
            pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
                options::set_size(self.socket.as_raw_fd(), libc::SO_RCVBUF, bytes)
            }
        }
    };
}
pub(super) use internet;

macro_rules! descriptor {
    ($type:ident) => {
        impl $type {
            /// Cancels every operation in flight on this socket; returns their count. Each ends
            /// with `ECANCELED`, or with its result if that came first. See
            /// `IORING_ASYNC_CANCEL_FD`, kernel 5.19.
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
            /// Releases the descriptor from its loop.
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
            /// Takes over a descriptor of this kind; calls on another kind fail.
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
            /// Takes over a listener's descriptor; calls on another kind fail.
            ///
            /// Makes it non-blocking, and so every other handle of the listener (`try_clone`, an
            /// inherited descriptor): their `accept` returns `WouldBlock`. Otherwise one of them could
            /// accept a connection first, and this loop would block in accept(2).
            fn from(fd: OwnedFd) -> Self {
                // A descriptor of another kind fails when it is used.
                drop($crate::sys::socket::set_nonblocking(fd.as_raw_fd(), true));
                Socket::from(fd).into()
            }
        }

        impl From<$std> for $type {
            /// Takes the descriptor over and makes it non-blocking, as from an `OwnedFd`.
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
