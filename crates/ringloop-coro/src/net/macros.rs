//! What all sockets have of std's methods and traits, written once.
//!
//! Called by: `tcp`, `udp`, `unix`. Never does: anything by itself.

/// Of every socket: the descriptor, readiness, conversions.
macro_rules! socket {
    ($type:ident, $std:ty) => {
        impl $type {
            /// Make another handle of the same socket.
            ///
            /// It is the same descriptor, with the same time limits; nothing is duplicated, and nothing can fail.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self {
                    socket: self.socket.clone(),
                })
            }

            /// Take the error that waits on the socket (`SO_ERROR`), if any.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                (*self.socket).take_error()
            }

            /// Have calls return `WouldBlock` in place of parking.
            pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.socket.set_nonblocking(nonblocking);
                Ok(())
            }

            /// Wait until a read or an accept would not wait, as a future: for `select!`.
            ///
            /// Cancel safety: safe.
            pub fn readable(&self) -> impl Future<Output = io::Result<()>> + '_ {
                self.socket.ready(Interest::READ)
            }

            /// Wait until a write would not wait, as a future: for `select!`.
            ///
            /// Cancel safety: safe.
            pub fn writable(&self) -> impl Future<Output = io::Result<()>> + '_ {
                self.socket.ready(Interest::WRITE)
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.socket.as_fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.socket.as_raw_fd()
            }
        }

        impl TryFrom<$std> for $type {
            type Error = io::Error;

            /// Takes the socket over.
            ///
            /// Errors: those of fcntl(2), by which it becomes non-blocking.
            fn try_from(socket: $std) -> io::Result<Self> {
                socket.set_nonblocking(true)?;
                Ok(Self {
                    socket: Socket::new(socket),
                })
            }
        }

        impl TryFrom<$type> for OwnedFd {
            type Error = io::Error;

            /// A duplicate of the descriptor, which is non-blocking and known to no loop; the socket itself is
            /// closed with its last clone.
            ///
            /// Errors: `EMFILE`.
            fn try_from(socket: $type) -> io::Result<Self> {
                socket.socket.into_fd()
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.socket, f)
            }
        }
    };
}

/// How long calls wait.
macro_rules! timeouts {
    ($type:ident) => {
        impl $type {
            /// Let a read wait so long at most, then return `WouldBlock`; `None`: for ever.
            ///
            /// Errors: `InvalidInput` for zero.
            pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.socket.set_timeout(Direction::Read, limit)
            }

            /// Let a write wait so long at most, then return `WouldBlock`; `None`: for ever.
            ///
            /// Errors: `InvalidInput` for zero.
            pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.socket.set_timeout(Direction::Write, limit)
            }

            /// How long a read waits at most.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.socket.timeout(Direction::Read))
            }

            /// How long a write waits at most.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.socket.timeout(Direction::Write))
            }
        }
    };
}

/// Of streams: reading and writing.
macro_rules! stream {
    ($type:ident) => {
        impl $type {
            /// Shut down one or both directions.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                (*self.socket).shutdown(how)
            }

            /// Receive some bytes, as a future: for `select!`.
            ///
            /// Cancel safety: safe; nothing is taken before it is ready.
            pub async fn read_async(&self, into: &mut [u8]) -> io::Result<usize> {
                self.socket
                    .when_ready_async(Direction::Read, |mut socket| socket.read(into))
                    .await
            }

            /// Send some bytes, as a future: for `select!`.
            ///
            /// Cancel safety: safe; nothing is sent before it is ready.
            pub async fn write_async(&self, from: &[u8]) -> io::Result<usize> {
                self.socket
                    .when_ready_async(Direction::Write, |mut socket| socket.write(from))
                    .await
            }
        }

        impl Read for $type {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.socket.read(into)
            }

            fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self).read_vectored(into)
            }
        }

        impl Read for &$type {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.socket.read(into)
            }

            fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.socket
                    .when_ready(Direction::Read, |mut socket| socket.read_vectored(into))
            }
        }

        impl Write for $type {
            fn write(&mut self, from: &[u8]) -> io::Result<usize> {
                self.socket.write(from)
            }

            fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(from)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Write for &$type {
            fn write(&mut self, from: &[u8]) -> io::Result<usize> {
                self.socket.write(from)
            }

            fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
                self.socket
                    .when_ready(Direction::Write, |mut socket| socket.write_vectored(from))
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

pub(super) use {socket, stream, timeouts};
