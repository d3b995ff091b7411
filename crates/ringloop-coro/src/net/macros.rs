//! Methods and traits that several sockets share with std's, each written once.
//!
//! Owns: one macro for each group of methods. Called by: `tcp`, `udp`, `unix`, which import what
//! the macros name.

/// Of every socket: the descriptor, readiness, conversions.
macro_rules! socket {
    ($type:ident, $std:ty) => {
        impl $type {
            /// Another handle of the same socket.
            ///
            /// It is the same descriptor, with the same time limits; it never fails.
            pub fn try_clone(&self) -> io::Result<Self> {
                let socket = self.socket.clone();
                Ok(Self { socket })
            }

            /// Takes the pending error of the socket (`SO_ERROR`), if any.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                (*self.socket).take_error()
            }

            /// Has calls return `WouldBlock` in place of parking.
            pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.socket.set_nonblocking(nonblocking);
                Ok(())
            }

            /// Waits until a read or an accept would not block: for `select!`.
            ///
            /// # Cancel safety
            /// Cancel safe.
            pub fn readable(&self) -> impl Future<Output = io::Result<()>> + '_ {
                self.socket.ready(Direction::Read)
            }

            /// Waits until a write would not block: for `select!`.
            ///
            /// # Cancel safety
            /// Cancel safe.
            pub fn writable(&self) -> impl Future<Output = io::Result<()>> + '_ {
                self.socket.ready(Direction::Write)
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

            /// Takes the socket over, and makes it non-blocking.
            ///
            /// # Errors
            /// Those of fcntl(2).
            fn try_from(socket: $std) -> io::Result<Self> {
                socket.set_nonblocking(true)?;
                let socket = Socket::new(socket);
                Ok(Self { socket })
            }
        }

        impl TryFrom<$type> for OwnedFd {
            type Error = io::Error;

            /// A duplicate of the descriptor, non-blocking and registered with no loop. The socket
            /// itself is closed with its last clone.
            ///
            /// # Errors
            /// `EMFILE`.
            fn try_from(socket: $type) -> io::Result<Self> {
                socket.as_fd().try_clone_to_owned()
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.socket, f)
            }
        }
    };
}

/// Methods of std's socket under the same names: `direct` ones never block, `read` and `write` ones
/// are made when the socket is ready.
macro_rules! methods {
    ($type:ident {
        $($(#[$doc:meta])* $kind:ident $name:ident($($arg:ident: $arg_type:ty),*) -> $output:ty;)*
    }) => {
        impl $type {$(
            $(#[$doc])*
            pub fn $name(&self $(, $arg: $arg_type)*) -> io::Result<$output> {
                macros::methods!(@$kind self.socket, |socket| socket.$name($($arg),*))
            }
        )*}
    };
    (@direct $socket:expr, |$std:ident| $call:expr) => {{
        let $std = &*$socket;
        $call
    }};
    (@read $socket:expr, |$std:ident| $call:expr) => {
        $socket.when_ready(Direction::Read, |$std| $call)
    };
    (@write $socket:expr, |$std:ident| $call:expr) => {
        $socket.when_ready(Direction::Write, |$std| $call)
    };
}

/// Of listeners: accepting.
macro_rules! listener {
    ($type:ident, $std:ty, $stream:ident, $addr:ty, $incoming:ident) => {
        macros::methods!($type {
            /// The address it listens on.
            direct local_addr() -> $addr;
        });

        impl $type {
            /// The next connection, even if its peer has reset it.
            fn next(&self) -> io::Result<$stream> {
                if self.socket.may_time_out(Direction::Read) {
                    let accepted = self.socket.when_ready(Direction::Read, <$std>::accept);
                    pause_after(&accepted);
                    return accepted?.0.try_into();
                }
                let accept = Accept {
                    fd: self.socket.on_loop(),
                    multi: false,
                };
                let accepted = block_on(Op::new(accept));
                pause_after(&accepted);
                Ok($stream::from_fd(accepted?))
            }

            /// Accepts a connection: for `select!`.
            ///
            /// # Cancel safety
            /// Cancel safe: no connection is taken before it is ready.
            pub async fn accept_async(&self) -> io::Result<($stream, $addr)> {
                let accept = self.socket.when_ready_async(Direction::Read, <$std>::accept);
                let (stream, peer) = after_a_pause(accept.await).await?;
                Ok((stream.try_into()?, peer))
            }

            /// The connections in turn, without end. A connection that was reset meanwhile is
            /// returned too; its reads fail.
            pub fn incoming(&self) -> $incoming<'_> {
                $incoming { listener: self }
            }
        }

        /// The connections of a listener, without end; an error is an item, and the next item is
        /// another try.
        #[derive(Debug)]
        pub struct $incoming<'a> {
            listener: &'a $type,
        }

        impl Iterator for $incoming<'_> {
            type Item = io::Result<$stream>;

            fn next(&mut self) -> Option<Self::Item> {
                Some(self.listener.next())
            }
        }

        impl FusedIterator for $incoming<'_> {}
    };
}

/// Time limits of reads and writes.
macro_rules! timeouts {
    ($type:ident) => {
        impl $type {
            /// Lets a read wait at most this long, then return `WouldBlock`; `None`: forever.
            ///
            /// # Errors
            /// `InvalidInput` for zero.
            pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.socket.set_timeout(Direction::Read, limit)
            }

            /// Lets a write wait at most this long, then return `WouldBlock`; `None`: forever.
            ///
            /// # Errors
            /// `InvalidInput` for zero.
            pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                self.socket.set_timeout(Direction::Write, limit)
            }

            /// The time limit of a read.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.socket.timeout(Direction::Read))
            }

            /// The time limit of a write.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.socket.timeout(Direction::Write))
            }
        }
    };
}

/// Of streams: reading and writing.
macro_rules! stream {
    ($type:ident, $addr:ty) => {
        macros::methods!($type {
            /// Shuts down one or both directions.
            direct shutdown(how: Shutdown) -> ();
            /// This end's address.
            direct local_addr() -> $addr;
            /// The peer's address.
            direct peer_addr() -> $addr;
        });

        impl $type {
            /// A stream of a socket that does not block.
            fn from_fd(fd: OwnedFd) -> Self {
                let socket = Socket::new(fd.into());
                Self { socket }
            }

            /// Receives some bytes: for `select!`.
            ///
            /// # Cancel safety
            /// Cancel safe: nothing is received before the socket is ready.
            pub async fn read_async(&self, into: &mut [u8]) -> io::Result<usize> {
                let read = |mut socket: &_| Read::read(&mut socket, into);
                self.socket.when_ready_async(Direction::Read, read).await
            }

            /// Sends some bytes: for `select!`.
            ///
            /// # Cancel safety
            /// Cancel safe: nothing is sent before the socket is ready.
            pub async fn write_async(&self, from: &[u8]) -> io::Result<usize> {
                let write = |mut socket: &_| Write::write(&mut socket, from);
                self.socket.when_ready_async(Direction::Write, write).await
            }
        }

        macros::stream!(@traits $type);
        macros::stream!(@traits &$type);
    };
    (@traits $type:ty) => {
        impl Read for $type {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.socket.read(into)
            }

            fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                let socket = &self.socket;
                socket.when_ready(Direction::Read, |mut socket| socket.read_vectored(into))
            }
        }

        impl Write for $type {
            fn write(&mut self, from: &[u8]) -> io::Result<usize> {
                self.socket.write(from)
            }

            fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
                let socket = &self.socket;
                socket.when_ready(Direction::Write, |mut socket| socket.write_vectored(from))
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

pub(super) use {listener, methods, socket, stream, timeouts};
