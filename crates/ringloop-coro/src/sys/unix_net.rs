//! Unix sockets of std; on Windows, which has none in std, types whose calls fail with `ENOSYS`.
//!
//! Owns: the choice, at compile time. Called by: `net`.

#[cfg(windows)]
pub(crate) use absent::*;
#[cfg(unix)]
pub(crate) use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

#[cfg(windows)]
mod absent {
    use ringloop::embed::sys::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
    use ringloop::embed::sys::libc;
    use std::io::{self, Read, Write};
    use std::net::Shutdown;
    use std::path::Path;

    /// The address of none.
    #[derive(Debug, Clone)]
    pub enum SocketAddr {}

    fn absent<T>() -> io::Result<T> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    macro_rules! absent {
        ($($type:ident { $($name:ident($($argument:ty),*) -> $output:ty;)* })*) => {$(
            /// Fails with `ENOSYS`.
            #[derive(Debug)]
            pub struct $type(OwnedFd);

            impl $type {
                $(pub fn $name(&self, $(_: $argument),*) -> io::Result<$output> {
                    absent()
                })*

                pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                    absent()
                }

                pub fn set_nonblocking(&self, _: bool) -> io::Result<()> {
                    absent()
                }

                pub fn local_addr(&self) -> io::Result<SocketAddr> {
                    absent()
                }
            }

            impl AsFd for $type {
                fn as_fd(&self) -> BorrowedFd<'_> {
                    self.0.as_fd()
                }
            }

            impl AsRawFd for $type {
                fn as_raw_fd(&self) -> RawFd {
                    self.0.as_raw_fd()
                }
            }

            impl From<OwnedFd> for $type {
                fn from(fd: OwnedFd) -> Self {
                    Self(fd)
                }
            }

            impl From<$type> for OwnedFd {
                fn from(socket: $type) -> Self {
                    socket.0
                }
            }
        )*};
    }

    absent! {
        UnixListener { accept() -> (UnixStream, SocketAddr); }
        UnixStream {
            peer_addr() -> SocketAddr;
            shutdown(Shutdown) -> ();
        }
        UnixDatagram {
            connect(impl AsRef<Path>) -> ();
            peer_addr() -> SocketAddr;
            recv(&mut [u8]) -> usize;
            recv_from(&mut [u8]) -> (usize, SocketAddr);
            send(&[u8]) -> usize;
            send_to(&[u8], impl AsRef<Path>) -> usize;
            shutdown(Shutdown) -> ();
        }
    }

    impl UnixListener {
        pub fn bind(_: impl AsRef<Path>) -> io::Result<Self> {
            absent()
        }
    }

    impl UnixStream {
        pub fn pair() -> io::Result<(Self, Self)> {
            absent()
        }
    }

    impl UnixDatagram {
        pub fn bind(_: impl AsRef<Path>) -> io::Result<Self> {
            absent()
        }

        pub fn pair() -> io::Result<(Self, Self)> {
            absent()
        }

        pub fn unbound() -> io::Result<Self> {
            absent()
        }
    }

    impl Read for &UnixStream {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            absent()
        }
    }

    impl Write for &UnixStream {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            absent()
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
