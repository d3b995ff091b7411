//! Handles of Windows as descriptors: numbers of 32 bits.
//!
//! Handles have 32 significant bits (Windows documentation, "Interprocess Communication Between 32-bit and
//! 64-bit Applications"), and are multiples of four. So a descriptor can be a result of an operation, which
//! is a non-negative `i32` or an error, and its lowest bit can tell what it is:
//!
//! ```text
//!   socket   handle        closed by closesocket
//!   other    handle | 1    closed by CloseHandle: the kernel ignores the two lowest bits
//! ```
//!
//! # Invariants
//! - **W1** An [`OwnedFd`] is the only owner of an open handle of the kind that its lowest bit says.
//! - **W2** A [`BorrowedFd`] is of a handle that stays open for its lifetime.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::windows::io::{
    AsHandle, AsRawHandle, AsRawSocket, AsSocket, BorrowedHandle, BorrowedSocket, FromRawHandle,
    FromRawSocket, IntoRawHandle, IntoRawSocket, OwnedHandle, OwnedSocket, RawHandle, RawSocket,
};

/// A handle as a number; its lowest bit says if it is a socket (0). Negative: none.
pub type RawFd = i32;

/// The bit of what is no socket.
const OTHER: i32 = 1;

/// What has a descriptor.
pub trait AsRawFd {
    /// The descriptor.
    fn as_raw_fd(&self) -> RawFd;
}

/// What lends a descriptor.
pub trait AsFd {
    /// The descriptor, for as long as it is borrowed.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

/// What is made of a descriptor.
pub trait FromRawFd {
    /// Takes the descriptor over.
    ///
    /// # Safety
    /// It is open, of the kind that its lowest bit says, and nothing else owns it.
    unsafe fn from_raw_fd(fd: RawFd) -> Self;
}

/// What a descriptor is taken out of.
pub trait IntoRawFd {
    /// The descriptor, which is the caller's to close.
    fn into_raw_fd(self) -> RawFd;
}

/// An open handle, closed on drop.
pub struct OwnedFd(RawFd);

/// A borrowed descriptor.
#[derive(Clone, Copy)]
pub struct BorrowedFd<'a> {
    fd: RawFd,
    owner: PhantomData<&'a OwnedFd>,
}

/// True for the descriptor of a socket.
pub fn is_socket(fd: RawFd) -> bool {
    fd >= 0 && fd & OTHER == 0
}

/// The socket of a descriptor; of none, a number that no socket has.
pub fn socket_of(fd: RawFd) -> RawSocket {
    fd as isize as RawSocket
}

/// The handle of a descriptor.
pub fn handle_of(fd: RawFd) -> RawHandle {
    ((fd & !OTHER) as isize) as RawHandle
}

/// The descriptor of a socket.
pub fn of_socket(socket: RawSocket) -> RawFd {
    let fd = i32::try_from(socket).unwrap_or(-1);
    assert!(is_socket(fd), "{socket:#x} is no socket's handle");
    fd
}

/// The descriptor of the handle of an object that is no socket.
pub fn of_handle(handle: RawHandle) -> RawFd {
    let fd = i32::try_from(handle as isize).unwrap_or(-1);
    assert!(is_socket(fd), "{handle:?} is no handle of an object");
    fd | OTHER
}

impl OwnedFd {
    /// A second handle of the same object.
    ///
    /// # Errors
    /// Those of `WSADuplicateSocketW` and `DuplicateHandle`.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.as_fd().try_clone_to_owned()
    }
}

impl BorrowedFd<'_> {
    /// Borrows a descriptor.
    ///
    /// # Safety
    /// It is open for the lifetime that the caller takes, and of the kind that its lowest bit says.
    pub unsafe fn borrow_raw(fd: RawFd) -> Self {
        Self { fd, owner: PhantomData }
    }

    /// A second handle of the same object.
    ///
    /// # Errors
    /// As of [`OwnedFd::try_clone`].
    pub fn try_clone_to_owned(&self) -> io::Result<OwnedFd> {
        if is_socket(self.fd) {
            // SAFETY: W2.
            let socket = unsafe { BorrowedSocket::borrow_raw(socket_of(self.fd)) };
            return socket.try_clone_to_owned().map(OwnedFd::from);
        }
        // SAFETY: W2.
        let handle = unsafe { BorrowedHandle::borrow_raw(handle_of(self.fd)) };
        handle.try_clone_to_owned().map(OwnedFd::from)
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        if is_socket(self.0) {
            // SAFETY: W1.
            drop(unsafe { OwnedSocket::from_raw_socket(socket_of(self.0)) });
        } else {
            // SAFETY: W1.
            drop(unsafe { OwnedHandle::from_raw_handle(handle_of(self.0)) });
        }
    }
}

impl FromRawFd for OwnedFd {
    unsafe fn from_raw_fd(fd: RawFd) -> Self {
        Self(fd)
    }
}

impl IntoRawFd for OwnedFd {
    fn into_raw_fd(self) -> RawFd {
        ManuallyDrop::new(self).0
    }
}

impl AsRawFd for OwnedFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd { fd: self.0, owner: PhantomData }
    }
}

impl AsRawFd for BorrowedFd<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl fmt::Debug for OwnedFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedFd").field(&self.0).finish()
    }
}

impl fmt::Debug for BorrowedFd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BorrowedFd").field(&self.fd).finish()
    }
}

impl From<OwnedSocket> for OwnedFd {
    fn from(socket: OwnedSocket) -> Self {
        Self(of_socket(socket.into_raw_socket()))
    }
}

impl From<OwnedHandle> for OwnedFd {
    fn from(handle: OwnedHandle) -> Self {
        Self(of_handle(handle.into_raw_handle()))
    }
}

macro_rules! std_sockets {
    ($($type:ty)*) => {$(
        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                of_socket(self.as_raw_socket())
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                BorrowedFd { fd: of_socket(self.as_socket().as_raw_socket()), owner: PhantomData }
            }
        }

        impl From<$type> for OwnedFd {
            fn from(socket: $type) -> Self {
                OwnedSocket::from(socket).into()
            }
        }

        impl From<OwnedFd> for $type {
            /// # Panics
            /// If it is no socket.
            fn from(fd: OwnedFd) -> Self {
                assert!(is_socket(fd.0), "{fd:?} is no socket");
                // SAFETY: W1, and it is a socket.
                unsafe { OwnedSocket::from_raw_socket(socket_of(fd.into_raw_fd())) }.into()
            }
        }
    )*};
}

std_sockets!(std::net::TcpStream std::net::TcpListener std::net::UdpSocket);

macro_rules! std_handles {
    ($($type:ty)*) => {$(
        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                of_handle(self.as_raw_handle())
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                BorrowedFd { fd: of_handle(self.as_handle().as_raw_handle()), owner: PhantomData }
            }
        }

        impl From<$type> for OwnedFd {
            fn from(owner: $type) -> Self {
                OwnedHandle::from(owner).into()
            }
        }
    )*};
}

std_handles!(
    std::fs::File std::process::ChildStdin std::process::ChildStdout std::process::ChildStderr
);

impl From<OwnedFd> for std::fs::File {
    /// # Panics
    /// If it is a socket.
    fn from(fd: OwnedFd) -> Self {
        assert!(!is_socket(fd.0), "{fd:?} is a socket");
        // SAFETY: W1, and it is no socket.
        unsafe { OwnedHandle::from_raw_handle(handle_of(fd.into_raw_fd())) }.into()
    }
}

/// Unix sockets of std, of which there are none here.
pub mod unix_net {
    use super::OwnedFd;

    macro_rules! absent {
        ($($type:ident)*) => {$(
            /// None.
            #[derive(Debug)]
            pub enum $type {}

            impl From<$type> for OwnedFd {
                fn from(none: $type) -> Self {
                    match none {}
                }
            }
        )*};
    }

    absent!(UnixDatagram UnixListener UnixStream);
}
